//! What was offered minute by minute, and the limits learned from it. Pure: counts, time and policy in, samples to be
//! written and limits out.
//!
//! A minute's samples are written before they are learned from: what a restart would forget moves no limit.

pub mod csv;
pub(crate) mod learning;
mod standing;
pub mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plimsoll_policy::learning::{Baseline, Closed, Day, DaySamples, Filed, Minute, Sample, Step};
use plimsoll_core::names::Bucket;
use plimsoll_core::kill::Kill;
use plimsoll_policy::{Learned, LimitSource, Policy};
use plimsoll_core::quantity::Limit;
use plimsoll_core::report::Tally;
use plimsoll_core::quantity::MonoTime;
use serde::Serialize;

/// Buckets whose traffic is remembered.
pub const BUCKETS_MAX: usize = 1_000;
/// Minutes that may wait to be written; older ones are lost.
const UNWRITTEN_MAX: usize = 5;

/// The traffic of all buckets that a policy covers.
#[derive(Debug, Default)]
pub struct History {
    baselines: BTreeMap<Bucket, Baseline>,
    open: Option<Open>,
    unwritten: Vec<MinuteSamples>,
    /// Buckets that were forgotten since this was last asked.
    gone: Vec<Bucket>,
    figures: Figures,
}

/// What happened that nobody should have to guess.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Minutes that could not be written, so that nothing was learned from them.
    pub minutes_lost: u64,
    /// Samples of buckets for which there was no room.
    pub homeless: u64,
    /// The last minute could not be written.
    pub failing: bool,
}

/// What was offered to each bucket in one minute.
#[derive(Clone, Debug, PartialEq)]
pub struct MinuteSamples {
    /// Which minute, by this process's wall clock.
    pub minute: Minute,
    /// The buckets that were asked.
    pub samples: BTreeMap<Bucket, Sample>,
}

/// What the days of some buckets came to, to be kept.
pub type ToKeep = Vec<(Bucket, Closed)>;
/// What became of days from elsewhere; `None` where there was no room for the bucket.
pub type FiledDays = Vec<(Bucket, Day, Option<Filed>)>;

/// How far the limit of a bucket has been learned.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Standing {
    /// Requests/s in force that were learned; null as long as there are none.
    pub limit_rps: Option<f64>,
    /// The day since which it has this value, by its first second in UTC.
    pub since: Option<String>,
    /// Peaks of days that are remembered.
    pub days: usize,
    /// How many of the last ones count.
    pub days_counted: usize,
    /// Clean minutes of the present day.
    pub minutes_today: usize,
    /// Minutes of the present day in which something was refused or killed.
    pub left_out_today: usize,
    /// Why nothing was learned yet.
    pub waits_for: Option<String>,
}

/// The minute that has not ended yet.
#[derive(Debug)]
struct Open {
    minute: Minute,
    began: MonoTime,
    totals: BTreeMap<Bucket, (Tally, Kill)>,
}

impl History {
    /// The time is `now`, in `minute`. When another minute has begun, samples the one that is over: `totals` says what was
    /// counted of each bucket in all, and the kill generations that concern it.
    pub fn on_time<'a, T>(
        &mut self,
        now: MonoTime,
        minute: Minute,
        policy: &Policy,
        totals: impl FnOnce() -> T,
    ) where
        T: Iterator<Item = (&'a Bucket, Tally, Kill)>,
    {
        if self.open.as_ref().is_some_and(|open| open.minute == minute) {
            return;
        }
        let totals: BTreeMap<Bucket, (Tally, Kill)> =
            totals().map(|(name, tally, kill)| (name.clone(), (tally, kill))).collect();
        if let Some(over) = self.open.take() {
            let samples = self.samples(&over, now.since(over.began), &totals, policy);
            self.unwritten.push(MinuteSamples { minute: over.minute, samples });
            if self.unwritten.len() > UNWRITTEN_MAX {
                self.unwritten.remove(0);
                self.on_lost();
            }
        }
        self.open = Some(Open { minute, began: now, totals });
    }

    fn samples(
        &mut self,
        over: &Open,
        span: Duration,
        totals: &BTreeMap<Bucket, (Tally, Kill)>,
        policy: &Policy,
    ) -> BTreeMap<Bucket, Sample> {
        let mut samples = BTreeMap::new();
        for (bucket, (total, kill)) in totals {
            let (before, kill_before) = over.totals.get(bucket).copied().unwrap_or((Tally::ZERO, *kill));
            let killed = kill.is_on() || *kill != kill_before;
            if let Some(sample) = Sample::of(total.since(before), span, killed) {
                samples.insert(bucket.clone(), sample);
            }
        }
        let is_new = |bucket: &&Bucket| !self.baselines.contains_key(*bucket);
        let mut new: Vec<Bucket> = samples.keys().filter(is_new).cloned().collect();
        if self.baselines.len() + new.len() > BUCKETS_MAX {
            self.make_room(policy);
            // Who learns comes first.
            new.sort_by_key(|bucket| learned(policy, bucket).is_none());
            for homeless in new.iter().skip(BUCKETS_MAX.saturating_sub(self.baselines.len())) {
                samples.remove(homeless);
                self.figures.homeless += 1;
            }
        }
        samples
    }

    /// Forgets buckets without traffic today that nothing was learned of, or need not be.
    fn make_room(&mut self, policy: &Policy) {
        let before: Vec<Bucket> = self.baselines.keys().cloned().collect();
        self.baselines.retain(|bucket, baseline| {
            let is_idle = baseline.minutes() == (0, 0);
            !is_idle || (baseline.peaks().len() > 0 && learned(policy, bucket).is_some())
        });
        self.gone.extend(before.into_iter().filter(|bucket| !self.baselines.contains_key(bucket)));
    }

    /// The buckets that were forgotten since this was last asked: nothing has to be kept of them.
    pub fn take_gone(&mut self) -> Vec<Bucket> {
        std::mem::take(&mut self.gone)
    }

    /// The minutes that are over and have to be written, oldest first.
    pub fn take_unwritten(&mut self) -> Vec<MinuteSamples> {
        std::mem::take(&mut self.unwritten)
    }

    /// A minute was written: learns from it. Where a day ended with that, returns what is to be kept of each bucket.
    pub fn on_written(&mut self, written: &MinuteSamples, policy: &Policy) -> ToKeep {
        self.figures.failing = false;
        self.replay(written, policy, |_| true)
    }

    fn replay(
        &mut self,
        minute: &MinuteSamples,
        policy: &Policy,
        counts: impl Fn(&Baseline) -> bool,
    ) -> ToKeep {
        for bucket in minute.samples.keys() {
            if self.baselines.len() < BUCKETS_MAX && !self.baselines.contains_key(bucket) {
                self.baselines.insert(bucket.clone(), Baseline::default());
            }
        }
        let mut closed = Vec::new();
        for (bucket, baseline) in self.baselines.iter_mut().filter(|(_, baseline)| counts(baseline)) {
            if baseline.turn(minute.minute.day(), learned(policy, bucket)) {
                closed.push((bucket.clone(), baseline.closed()));
            }
            if let Some(sample) = minute.samples.get(bucket) {
                baseline.record(minute.minute, *sample);
            }
        }
        closed
    }

    /// A minute could not be written, and is not learned from.
    pub fn on_lost(&mut self) {
        self.figures.minutes_lost += 1;
        self.figures.failing = true;
    }

    /// Goes on from what was kept, and from the minutes written since.
    pub fn restore(
        &mut self,
        closed: BTreeMap<Bucket, Closed>,
        minutes: impl IntoIterator<Item = MinuteSamples>,
        policy: &Policy,
    ) {
        self.baselines = closed
            .into_iter()
            .take(BUCKETS_MAX)
            .map(|(bucket, closed)| (bucket, Baseline::restore(closed)))
            .collect();
        for minute in minutes {
            let day = minute.minute.day();
            self.replay(&minute, policy, |baseline| baseline.today().is_none_or(|today| today <= day));
        }
        self.on_policy(policy);
    }

    /// A policy is in force: what is to be learned now may follow from what was offered before.
    pub fn on_policy(&mut self, policy: &Policy) {
        for (bucket, baseline) in &mut self.baselines {
            baseline.learn(learned(policy, bucket));
        }
    }

    /// Adds days from elsewhere that are over. Returns what became of each, and what is to be kept of their buckets.
    pub fn import(
        &mut self,
        days: &BTreeMap<(Bucket, Day), DaySamples>,
        today: Day,
        replace: bool,
        policy: &Policy,
    ) -> (FiledDays, ToKeep) {
        let mut filed = Vec::new();
        let mut touched = BTreeSet::new();
        for ((bucket, day), samples) in days {
            let source = learned(policy, bucket);
            if !self.baselines.contains_key(bucket) {
                if self.baselines.len() >= BUCKETS_MAX {
                    self.make_room(policy);
                }
                if self.baselines.len() >= BUCKETS_MAX {
                    self.figures.homeless += 1;
                    filed.push((bucket.clone(), *day, None));
                    continue;
                }
                let mut baseline = Baseline::default();
                baseline.turn(today, source);
                self.baselines.insert(bucket.clone(), baseline);
            }
            let Some(baseline) = self.baselines.get_mut(bucket) else { continue };
            let result = baseline.file(*day, samples, replace, source.unwrap_or(&Learned::default()));
            filed.push((bucket.clone(), *day, Some(result)));
            touched.insert(bucket.clone());
        }
        // Once all days are in: a first limit is taken over all of them.
        let kept = touched.into_iter().filter_map(|bucket| {
            let baseline = self.baselines.get_mut(&bucket)?;
            baseline.learn(learned(policy, &bucket));
            let closed = baseline.closed();
            Some((bucket, closed))
        });
        let kept = kept.collect();
        (filed, kept)
    }

    /// The limit of a bucket that is to be learned: `until_history`, if anything, before there is one.
    #[must_use]
    pub fn limit(&self, bucket: &Bucket, learned: &Learned) -> Limit {
        let step = self.step(bucket, learned).map(|step| step.limit);
        step.or(learned.until_history).map_or(Limit::Unknown, Limit::PerSecond)
    }

    fn step(&self, bucket: &Bucket, learned: &Learned) -> Option<Step> {
        self.baselines.get(bucket)?.limit(learned)
    }

    /// How far the limit of a bucket has been learned, and why not further.
    #[must_use]
    pub fn standing(&self, bucket: &Bucket, learned: &Learned) -> Standing {
        Standing::of(self.baselines.get(bucket), self.step(bucket, learned), learned, self.figures.failing)
    }

    /// The present day, by the clock that the minutes came with.
    #[must_use]
    pub fn today(&self) -> Option<Day> {
        self.open.as_ref().map(|open| open.minute.day())
    }

    /// What happened that nobody should have to guess.
    #[must_use]
    pub const fn figures(&self) -> Figures {
        self.figures
    }

    /// Buckets whose traffic is remembered.
    pub fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.baselines.keys()
    }
}

/// What a policy says of a bucket whose limit is to be learned.
#[must_use]
pub fn learned<'a>(policy: &'a Policy, bucket: &Bucket) -> Option<&'a Learned> {
    match policy.bucket(bucket)?.source() {
        LimitSource::Learned(learned) => Some(learned),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
