//! The memory of one name's requests: its rate and its standing follow from it.

use std::time::Duration;

use super::{Bin, Standing};
use crate::law::parameters;
use crate::quantity::MonoTime;

/// The unit of times in a memory, in seconds: four bytes are enough, because an aggregator has a million memories.
const TENTH: f32 = 0.1;

/// The requests of one name, each memory as an exponentially fading count.
#[derive(Clone, Copy, Debug, Default)]
pub struct NameMemory {
    /// Requests in the memory of 30 s.
    long: f32,
    /// Requests in the memory of 1 s.
    short: f32,
    /// Tenths of a second: the time of the first request, and of the latest update.
    first: u32,
    last: u32,
    /// Tenths of a second since the first request, as far as they matter to the short memory, which never begins anew.
    filled: u8,
    /// Number of looks with traffic, as far as they matter.
    looks: u8,
    /// True if it had traffic since the last look.
    was_seen: bool,
    standing: Standing,
}

impl NameMemory {
    /// The memory of a name that is seen for the first time.
    pub fn new(now: MonoTime, established: bool) -> Self {
        let first = tenths(now);
        let standing = Standing {
            established,
            bin: None,
        };
        Self {
            first,
            last: first,
            standing,
            ..Self::default()
        }
    }

    /// The present standing.
    pub const fn standing(&self) -> Standing {
        self.standing
    }

    /// The requests in the fast memory, which is a second.
    pub fn latest(&self) -> f64 {
        f64::from(self.short)
    }

    /// Makes the name an established one.
    pub const fn establish(&mut self) {
        self.standing.established = true;
    }

    /// Adds requests, and returns the standing that follows.
    pub fn add(&mut self, now: MonoTime, requests: f64, report_interval: Duration) -> Standing {
        self.fade(tenths(now));
        self.was_seen = true;
        self.long += requests as f32;
        self.short += requests as f32;
        self.follow(report_interval)
    }

    /// Looks at the name, once in 10 s. Returns true if it had traffic since the last
    /// look.
    pub fn look(&mut self, now: MonoTime, report_interval: Duration) -> bool {
        self.fade(tenths(now));
        self.follow(report_interval);
        let was_seen = std::mem::take(&mut self.was_seen);
        self.looks = self.looks.saturating_add(u8::from(was_seen));
        was_seen
    }

    /// Returns true if a new name had traffic at enough looks to be established.
    pub const fn is_due(&self) -> bool {
        !self.standing.established && self.looks >= parameters::TENANT_SAMPLES
    }

    /// Returns the rate in requests/s by the memory of 30 s; `None` before the requests tell it.
    pub fn rate_at(&self, now: MonoTime, report_interval: Duration) -> Option<f64> {
        self.standing.bin?;
        let mut faded = *self;
        faded.fade(tenths(now));
        let age = faded.last.saturating_sub(faded.first) as f32 * TENTH;
        let age = age + report_interval.as_secs_f32();
        Some(f64::from(
            faded.long / seconds_in(parameters::NAME_MEMORY, age),
        ))
    }

    fn fade(&mut self, now: u32) {
        let tenths = now.saturating_sub(self.last);
        let elapsed = tenths as f32 * TENTH;
        if elapsed > 0.0 {
            self.filled = self
                .filled
                .saturating_add(u8::try_from(tenths).unwrap_or(u8::MAX));
            self.last = now;
            self.long *= (-elapsed / parameters::NAME_MEMORY.as_secs_f32()).exp();
            self.short *= (-elapsed / parameters::NAME_MEMORY_FAST.as_secs_f32()).exp();
        }
    }

    fn follow(&mut self, report_interval: Duration) -> Standing {
        let was_counted = self.standing.bin.is_some();
        let from = if was_counted {
            parameters::NAME_COUNTS_KEPT
        } else {
            parameters::NAME_COUNTS
        };
        self.standing.bin = if f64::from(self.long) < from {
            None
        } else {
            let rate = f64::from(self.rate(report_interval));
            Some(
                self.standing
                    .bin
                    .map_or_else(|| Bin::of(rate), |bin| bin.follow(rate)),
            )
        };
        self.standing
    }

    /// The rate in requests/s. After a change that chance does not explain the long memory begins anew, with the short
    /// one.
    fn rate(&mut self, report_interval: Duration) -> f32 {
        // The first requests were gathered before they arrived.
        let gathered = report_interval.as_secs_f32();
        let age = self.last.saturating_sub(self.first) as f32 * TENTH + gathered;
        let rate = self.long / seconds_in(parameters::NAME_MEMORY, age);
        let filled = f32::from(self.filled) * TENTH + gathered;
        let fast_seconds = seconds_in(parameters::NAME_MEMORY_FAST, filled);
        let expected = rate * fast_seconds;
        // Requests arrive in reports, each at once: as many as the rate of one interval may be missing, or too many.
        let chance = 4.0 * expected.sqrt() + rate * gathered;
        let grew = self.short > expected + chance + 8.0;
        let shrank = expected >= 16.0 && self.short < expected - chance;
        if !(grew || shrank) {
            return rate;
        }
        let fast = self.short / fast_seconds;
        let since = parameters::NAME_MEMORY_FAST.as_secs_f32().min(age);
        let before = ((since - gathered).max(0.0) / TENTH).round() as u32;
        self.first = self.last.saturating_sub(before);
        self.long = fast * seconds_in(parameters::NAME_MEMORY, since);
        fast
    }
}

/// The seconds whose requests a fading memory of this age holds.
fn seconds_in(memory: Duration, age: f32) -> f32 {
    let memory = memory.as_secs_f32();
    memory * (1.0 - (-age / memory).exp())
}

fn tenths(now: MonoTime) -> u32 {
    u32::try_from(now.since(MonoTime::ZERO).as_millis() / 100).unwrap_or(u32::MAX)
}
