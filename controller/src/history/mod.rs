//! The traffic of each bucket minute by minute, and the limits learned from it. Pure: counts, time and policy
//! in, samples to be saved and limits out.
//!
//! A minute's samples are saved before they are learned from: minutes that a restart would lose move no
//! limit.

pub mod csv;
mod sampler;
pub(crate) mod store;
#[cfg(test)]
mod tests;

pub(crate) use sampler::{MinuteSamples, Samples};

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::kill::Kill;
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::{Limit, MonoTime};
use plimsoll_core::report::Tally;
use plimsoll_policy::learning::{
    Baseline, CLEAN_MINUTES_MIN, Closed, DAYS_MIN, Day, DaySamples, Filed, Minute, REFUSED_MAX,
    Sample, window,
};
use plimsoll_policy::{LEARNED_MAX, Learned, LimitSource, Policy, UnixSeconds};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::history::sampler::Sampler;
use crate::history::store::SavedAnswers;

/// Maximum number of buckets with a history, in addition to the buckets that the policy wants
/// learned by their exact name.
pub(crate) const BUCKETS_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct History {
    baselines: BTreeMap<Bucket, Baseline>,
    sampler: Sampler,
    /// True if the summaries of the closed days have changed since [`take_closed`](Self::take_closed), or were not saved.
    pub(crate) has_unsaved_days: bool,
    pub(crate) counters: Counters,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Minutes that could not be saved, so that nothing was learned from them. A start that cannot read the history, and a
    /// save that panics, count as one.
    pub(crate) minutes_lost: u64,
    /// Samples and imported days of new buckets that arrived when [`BUCKETS_MAX`] buckets had a history.
    pub(crate) rejected: u64,
    /// True if the last minute could not be saved, or the history not be read.
    pub(crate) failing: bool,
}

/// The progress of learning the limit of one bucket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LearningStatus {
    /// The learned limit in requests/s; null before there is one.
    pub limit_rps: Option<f64>,
    /// The first second of the day since which it has this value, in UTC.
    pub since: Option<String>,
    /// Remembered days with a peak.
    pub days: usize,
    /// The number of them, counted from the last, over which the limit is taken.
    pub days_counted: usize,
    /// Clean minutes of the present day.
    pub minutes_today: usize,
    /// Minutes of the present day that are not clean: more than 5 % was refused or would have been, or a kill was on.
    pub left_out_today: usize,
    /// Why no limit was learned yet.
    pub waits_for: Option<String>,
}

pub(crate) type ClosedDays = BTreeMap<Bucket, Closed>;

/// The parts of the history that must be saved.
#[derive(Debug)]
pub(crate) struct Unsaved {
    /// Ended minutes, oldest first.
    pub(crate) minutes: Vec<MinuteSamples>,
    /// All summaries, if one has changed.
    pub(crate) closed: Option<ClosedDays>,
    /// All answers, if one has changed.
    pub(crate) answers: Option<SavedAnswers>,
}

/// The result for each imported day; `None` if the history has no room for the bucket.
pub(crate) type FiledDays = Vec<(Bucket, Day, Option<Filed>)>;

// === impl History ===

impl History {
    /// Advances the time. When `minute` is another one than before, samples the minute that has ended.
    /// `totals` returns the total counts of each bucket, and the kill generations that concern it.
    pub(crate) fn on_time<'a, T>(
        &mut self,
        now: MonoTime,
        minute: Minute,
        policy: &Policy,
        totals: impl FnOnce() -> T,
    ) where
        T: Iterator<Item = (&'a Bucket, Tally, Kill)>,
    {
        if self.sampler.minute() == Some(minute) {
            return;
        }
        let totals = totals()
            .map(|(name, tally, kill)| (name.clone(), (tally, kill)))
            .collect();
        if let Some(mut ended) = self.sampler.turn(now, minute, totals) {
            self.reject_excess(&mut ended.samples, policy);
            if !self.sampler.push(ended) {
                self.on_lost();
            }
        }
    }

    /// Returns the room for further buckets without a limit to be learned by their exact name;
    /// listed ones always have room, since a policy bounds their number.
    fn room(&self, policy: &Policy) -> usize {
        BUCKETS_MAX.saturating_sub(
            self.baselines
                .keys()
                .filter(|bucket| !has_place(policy, bucket))
                .count(),
        )
    }

    /// Removes the samples of new buckets beyond [`BUCKETS_MAX`]. Buckets with a learned limit come first.
    fn reject_excess(&mut self, samples: &mut BTreeMap<Bucket, Sample>, policy: &Policy) {
        let is_new =
            |bucket: &&Bucket| !self.baselines.contains_key(*bucket) && !has_place(policy, bucket);
        let mut new: Vec<Bucket> = samples.keys().filter(is_new).cloned().collect();
        if new.len() <= self.room(policy) {
            return;
        }
        self.make_room(policy);
        new.sort_by_key(|bucket| learned_policy(policy, bucket).is_none());
        for excess in new.iter().skip(self.room(policy)) {
            samples.remove(excess);
            self.counters.rejected += 1;
        }
    }

    /// Forgets buckets without traffic today, except those with peaks that a limit is learned from.
    fn make_room(&mut self, policy: &Policy) {
        let before = self.baselines.len();
        self.baselines.retain(|bucket, baseline| {
            let is_idle = baseline.minutes() == (0, 0);
            !is_idle || (baseline.peaks().len() > 0 && learned_policy(policy, bucket).is_some())
        });
        self.has_unsaved_days |= self.baselines.len() < before;
    }

    pub(crate) fn take_closed(&mut self) -> Option<ClosedDays> {
        let closed = |(bucket, baseline): (&Bucket, &Baseline)| (bucket.clone(), baseline.closed());
        std::mem::take(&mut self.has_unsaved_days)
            .then(|| self.baselines.iter().map(closed).collect())
    }

    pub(crate) fn take_unwritten(&mut self) -> Vec<MinuteSamples> {
        self.sampler.take()
    }

    pub(crate) fn on_written(&mut self, written: &MinuteSamples, policy: &Policy) {
        self.counters.failing = false;
        self.replay(written, policy, |_| true);
    }

    /// Records a minute in the baselines that `counts` selects, and begins its day in them.
    fn replay(
        &mut self,
        minute: &MinuteSamples,
        policy: &Policy,
        counts: impl Fn(&Baseline) -> bool,
    ) {
        for bucket in minute.samples.keys() {
            if !self.baselines.contains_key(bucket)
                && (has_place(policy, bucket) || self.room(policy) > 0)
            {
                self.baselines.insert(bucket.clone(), Baseline::default());
            }
        }
        let day = minute.minute.day();
        for (bucket, baseline) in self
            .baselines
            .iter_mut()
            .filter(|(_, baseline)| counts(baseline))
        {
            if baseline.today() != Some(day) {
                self.has_unsaved_days |= baseline.today().is_some();
                baseline.turn(day, learned_policy(policy, bucket));
            }
            if let Some(sample) = minute.samples.get(bucket) {
                baseline.record(minute.minute, *sample);
            }
        }
    }

    /// Counts a minute that could not be saved. Nothing is learned from it.
    pub(crate) fn on_lost(&mut self) {
        self.counters.minutes_lost += 1;
        self.counters.failing = true;
    }

    pub(crate) fn restore(
        &mut self,
        closed: ClosedDays,
        minutes: impl IntoIterator<Item = MinuteSamples>,
        policy: &Policy,
    ) {
        self.baselines = closed
            .into_iter()
            .take(BUCKETS_MAX + LEARNED_MAX)
            .map(|(bucket, closed)| (bucket, Baseline::restore(closed)))
            .collect();
        for minute in minutes {
            let day = minute.minute.day();
            self.replay(&minute, policy, |baseline| {
                baseline.today().is_none_or(|today| today <= day)
            });
        }
        self.on_policy(policy);
    }

    pub(crate) fn on_policy(&mut self, policy: &Policy) {
        for (bucket, baseline) in &mut self.baselines {
            baseline.learn(learned_policy(policy, bucket));
        }
    }

    /// Adds past days. With `replace` they replace days that are known.
    pub(crate) fn import(
        &mut self,
        days: &BTreeMap<(Bucket, Day), DaySamples>,
        today: Day,
        replace: bool,
        policy: &Policy,
    ) -> FiledDays {
        let mut filed = Vec::new();
        let mut touched = BTreeSet::new();
        for ((bucket, day), samples) in days {
            let learned = learned_policy(policy, bucket);
            let is_known = self.baselines.contains_key(bucket) || has_place(policy, bucket);
            if !is_known && self.room(policy) == 0 {
                self.make_room(policy);
                if self.room(policy) == 0 {
                    self.counters.rejected += 1;
                    filed.push((bucket.clone(), *day, None));
                    continue;
                }
            }
            let baseline = self.baselines.entry(bucket.clone()).or_insert_with(|| {
                let mut baseline = Baseline::default();
                baseline.turn(today, learned);
                baseline
            });
            let result = baseline.file(
                *day,
                samples,
                replace,
                learned.unwrap_or(&Learned::default()),
            );
            filed.push((bucket.clone(), *day, Some(result)));
            touched.insert(bucket.clone());
        }
        // After all days: a first limit is computed over all of them.
        for bucket in touched {
            if let Some(baseline) = self.baselines.get_mut(&bucket) {
                baseline.learn(learned_policy(policy, &bucket));
                self.has_unsaved_days = true;
            }
        }
        filed
    }

    /// Returns the learned limit of a bucket; before there is one, `until_history`, or [`Limit::Unknown`]
    /// without it.
    pub(crate) fn limit(&self, bucket: &Bucket, learned: &Learned) -> Limit {
        let baseline = self.baselines.get(bucket);
        let learned_limit = baseline
            .and_then(|baseline| baseline.limit(learned))
            .map(|step| step.limit);
        learned_limit
            .or(learned.until_history)
            .map_or(Limit::Unknown, Limit::PerSecond)
    }

    pub(crate) fn status(&self, bucket: &Bucket, learned: &Learned) -> LearningStatus {
        let baseline = self.baselines.get(bucket);
        let step = baseline.and_then(|baseline| baseline.limit(learned));
        let days = baseline.map_or(0, |baseline| baseline.peaks().len());
        let (minutes_today, left_out_today) = baseline.map_or((0, 0), Baseline::minutes);
        let waits_for = if self.counters.failing {
            "a state directory that can be written: nothing is learned until then".to_owned()
        } else {
            format!(
                "the peaks of {DAYS_MIN} days, of which there are {days}; a day needs {CLEAN_MINUTES_MIN} minutes with \
                 requests of which at most {} % are refused",
                REFUSED_MAX * 100.0
            )
        };
        LearningStatus {
            limit_rps: step.map(|step| step.limit.per_second()),
            since: step.map(|step| {
                UnixSeconds::from_secs(step.since.first_minute().as_unix()).to_string()
            }),
            days,
            days_counted: days.min(window(learned)),
            minutes_today,
            left_out_today,
            waits_for: step.is_none().then_some(waits_for),
        }
    }
}

/// Returns true if the limit of a bucket is learned by its exact name: its history always has room.
fn has_place(policy: &Policy, bucket: &Bucket) -> bool {
    policy.is_exact(bucket) && learned_policy(policy, bucket).is_some()
}

/// Returns the policy for learning the limit of a bucket; `None` if the limit is from elsewhere.
pub(crate) fn learned_policy<'a>(policy: &'a Policy, bucket: &Bucket) -> Option<&'a Learned> {
    match &policy.bucket(bucket)?.source {
        LimitSource::Learned(learned) => Some(learned),
        _ => None,
    }
}
