//! Limits that the policy file does not state as a number: limits learned from the traffic, and limits
//! queried from Prometheus.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::{Limit, MonoTime, Rate};
use plimsoll_core::report::{Entered, Origin, Tally};
use plimsoll_policy::learning::{Day, DaySamples, Minute};
use plimsoll_policy::{LimitSource, Policy, Prometheus};

use super::Brain;
use crate::bucket::BucketState;
use crate::history::store::Restored;
use crate::history::{ClosedDays, FiledDays, History, MinuteSamples, Unsaved};

/// Maximum span of a report that counts for the minute when it arrives. A longer report shows
/// little about that minute.
const REPORT_SPAN_MAX: Duration = Duration::from_secs(15);

/// The last good answer to each query, by URL and query, before it is clamped to its bounds.
pub(crate) type LimitAnswers = BTreeMap<(String, String), LimitAnswer>;

pub(crate) type LimitChanges = Vec<LimitChange>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LimitChange {
    pub(crate) bucket: Bucket,
    pub(crate) old: Limit,
    pub(crate) new: Limit,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LimitAnswer {
    pub(crate) rate: Rate,
    /// The arrival of the answer; the restoration of one that was saved.
    pub(crate) at: MonoTime,
}

/// The evidence that limits follow from: the history of the traffic, and the answers to queries.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    pub(crate) history: History,
    pub(crate) answers: LimitAnswers,
    pub(crate) has_unsaved_answers: bool,
}

// === impl Limits ===

impl Limits {
    /// The limit of a bucket; unknown outside of the policy, and before one is learned or answered.
    pub(super) fn of(&self, policy: &Policy, bucket: &Bucket) -> Limit {
        let Some(of_bucket) = policy.bucket(bucket) else {
            return Limit::Unknown;
        };
        match &of_bucket.source {
            LimitSource::Learned(learned) => self.history.limit(bucket, learned),
            LimitSource::Prometheus(source) => {
                let answer = self
                    .answers
                    .get(&(source.url.clone(), source.query.clone()));
                answer.map_or(Limit::Unknown, |answer| {
                    Limit::PerSecond(source.bounds.clamp(answer.rate))
                })
            }
            LimitSource::Unlimited | LimitSource::PerSecond(_) => of_bucket.limit(),
        }
    }

    /// Applies a policy: learns by its settings, and forgets answers to queries that it does not have.
    pub(super) fn on_policy(&mut self, policy: &Policy) {
        self.history.on_policy(policy);
        self.retain_asked(policy);
    }

    /// Takes answers that were saved before a restart, unless a later answer has arrived.
    fn restore_answers(
        &mut self,
        now: MonoTime,
        saved: impl IntoIterator<Item = ((String, String), Rate)>,
        policy: &Policy,
    ) {
        for (asked, rate) in saved {
            self.answers
                .entry(asked)
                .or_insert(LimitAnswer { rate, at: now });
        }
        self.retain_asked(policy);
    }

    fn on_answer(&mut self, source: &Prometheus, answer: LimitAnswer, policy: &Policy) {
        let before = self
            .answers
            .insert((source.url.clone(), source.query.clone()), answer);
        self.has_unsaved_answers |= before.is_none_or(|before| before.rate != answer.rate);
        self.retain_asked(policy);
    }

    fn retain_asked(&mut self, policy: &Policy) {
        let asked: Vec<&Prometheus> = policy
            .entries()
            .filter_map(|(_, entry)| match &entry.source {
                LimitSource::Prometheus(source) => Some(source),
                _ => None,
            })
            .collect();
        self.answers.retain(|(url, query), _| {
            asked
                .iter()
                .any(|source| source.url == *url && source.query == *query)
        });
    }
}

// === impl Brain ===

impl Brain {
    /// Takes what must be saved: minutes that are over, summaries of closed days, and answers.
    pub(crate) fn take_unsaved_history(&mut self) -> Unsaved {
        let Limits {
            history,
            answers,
            has_unsaved_answers,
        } = &mut self.limits;
        let rates = || {
            answers
                .iter()
                .map(|(asked, answer)| (asked.clone(), answer.rate))
                .collect()
        };
        Unsaved {
            minutes: history.take_unwritten(),
            closed: history.take_closed(),
            answers: std::mem::take(has_unsaved_answers).then(rates),
        }
    }

    pub(crate) fn on_minute_written(&mut self, minute: &MinuteSamples) -> LimitChanges {
        self.limits
            .history
            .on_written(minute, &self.policies.in_force);
        self.apply_limits()
    }

    pub(crate) fn restore_history(&mut self, now: MonoTime, restored: Restored) {
        let policy = &self.policies.in_force;
        self.limits
            .history
            .restore(restored.closed, restored.minutes, policy);
        self.limits.restore_answers(now, restored.answers, policy);
        self.apply_limits();
    }

    /// Imports past days. Returns the result for each day, the summaries to save now, and the limits that
    /// changed.
    pub(crate) fn import_history(
        &mut self,
        days: &BTreeMap<(Bucket, Day), DaySamples>,
        today: Day,
        replace: bool,
    ) -> (FiledDays, Option<ClosedDays>, LimitChanges) {
        let filed = self
            .limits
            .history
            .import(days, today, replace, &self.policies.in_force);
        (
            filed,
            self.limits.history.take_closed(),
            self.apply_limits(),
        )
    }

    pub(crate) fn on_answer(&mut self, source: &Prometheus, answer: LimitAnswer) -> LimitChanges {
        self.limits
            .on_answer(source, answer, &self.policies.in_force);
        self.apply_limits()
    }

    pub(super) fn sample_minute(&mut self, now: MonoTime, unix_s: i64) {
        let (buckets, keys, durable) = (&self.buckets, &self.keys, &self.durable);
        let total = |bucket: &BucketState| {
            bucket
                .tenants
                .keys()
                .fold(Tally::ZERO, |sum, key| sum.plus(keys.total(key)))
        };
        // Buckets outside of the policy are left out: any client may invent names.
        let totals = || {
            let covered = buckets
                .states
                .values()
                .filter(|bucket| bucket.entry.is_some());
            covered.map(move |bucket| (&bucket.name, total(bucket), durable.kill_of(&bucket.name)))
        };
        self.limits.history.on_time(
            now,
            Minute::of_unix(unix_s),
            &self.policies.in_force,
            totals,
        );
    }

    /// Marks counts as late if they are no evidence of the present minute: the counts of a report over a long or
    /// unknown span, and counts that another parent had before.
    pub(super) fn note_late(&mut self, entered: &Entered) {
        let all = entered.span.is_none_or(|span| span > REPORT_SPAN_MAX);
        for entry in entered
            .entries
            .iter()
            .filter(|entry| all || entry.origin == Origin::TakenOver)
        {
            if let Some(own) = entry.own {
                self.keys.note_late(own, entry.delta);
            }
        }
    }

    fn apply_limits(&mut self) -> LimitChanges {
        let mut changes = Vec::new();
        for bucket in self.buckets.states.values_mut() {
            let (old, new) = (
                bucket.limit,
                self.limits.of(&self.policies.in_force, &bucket.name),
            );
            if bucket.set_limit(new) {
                changes.push(LimitChange {
                    bucket: bucket.name.clone(),
                    old,
                    new,
                });
            }
        }
        if !changes.is_empty() {
            self.assign_holds();
        }
        changes
    }
}
