//! Turns growing totals into one sample of each bucket per minute.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::kill::Kill;
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::Tally;
use plimsoll_policy::learning::{Minute, Sample};

/// Maximum number of ended minutes that wait to be saved. Of more, the oldest is lost.
pub(super) const UNWRITTEN_MAX: usize = 5;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MinuteSamples {
    /// The minute, by this process's wall clock.
    pub(crate) minute: Minute,
    pub(crate) samples: Samples,
}

pub(crate) type Samples = BTreeMap<Bucket, Sample>;

/// The total counts of a bucket, and the kill generations that concern it.
type Totals = BTreeMap<Bucket, (Tally, Kill)>;

#[derive(Debug, Default)]
pub(super) struct Sampler {
    open: Option<OpenMinute>,
    unwritten: Vec<MinuteSamples>,
}

#[derive(Debug)]
struct OpenMinute {
    minute: Minute,
    began: MonoTime,
    totals: Totals,
}

// === impl Sampler ===

impl Sampler {
    /// The present minute; `None` before the first [`turn`](Self::turn).
    pub(super) fn minute(&self) -> Option<Minute> {
        self.open.as_ref().map(|open| open.minute)
    }

    /// Begins a minute. Returns the samples of the one before.
    pub(super) fn turn(
        &mut self,
        now: MonoTime,
        minute: Minute,
        totals: Totals,
    ) -> Option<MinuteSamples> {
        debug_assert_ne!(self.minute(), Some(minute), "a minute begins once");
        let ended = self.open.take().map(|open| open.end(now, &totals));
        self.open = Some(OpenMinute {
            minute,
            began: now,
            totals,
        });
        ended
    }

    /// Queues a minute to be saved; false if the oldest one was dropped for it.
    pub(super) fn push(&mut self, ended: MinuteSamples) -> bool {
        self.unwritten.push(ended);
        let has_room = self.unwritten.len() <= UNWRITTEN_MAX;
        if !has_room {
            self.unwritten.remove(0);
        }
        has_room
    }

    pub(super) fn take(&mut self) -> Vec<MinuteSamples> {
        std::mem::take(&mut self.unwritten)
    }
}

// === impl OpenMinute ===

impl OpenMinute {
    fn end(self, now: MonoTime, totals: &Totals) -> MinuteSamples {
        let span: Duration = now.since(self.began);
        let mut samples = BTreeMap::new();
        for (bucket, (total, kill)) in totals {
            let (before, kill_before) = self
                .totals
                .get(bucket)
                .copied()
                .unwrap_or((Tally::ZERO, *kill));
            let killed = kill.is_on() || *kill != kill_before;
            if let Some(sample) = Sample::of(total.since(before), span, killed) {
                samples.insert(bucket.clone(), sample);
            }
        }
        MinuteSamples {
            minute: self.minute,
            samples,
        }
    }
}
