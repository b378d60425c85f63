//! Limits that are not written in the policy: what the brain learns minute by minute, and what others answer for it.

use plimsoll_policy::learning::{Closed, Day, DaySamples, Minute};
use plimsoll_policy::{LimitSource, Prometheus};
use plimsoll_core::quantity::Limit;
use plimsoll_core::report::Origin;

use super::*;
use crate::history::{FiledDays, MinuteSamples, ToKeep};

/// A report that covers more than this says little about the minute in which it comes.
const REPORT_SPAN_MAX: Duration = Duration::from_secs(15);

/// The last good answer to each query of the policy, before it is held between bounds.
pub type Answers = BTreeMap<(String, String), Answer>;

/// Buckets with another limit than before.
pub type Changes = Vec<(Bucket, Limit)>;

/// The answer to a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// Requests/s.
    pub rate: Rate,
    /// When it came.
    pub at: MonoTime,
}

impl Brain {
    /// Time passes: samples the minute that is over, if one is.
    pub(super) fn sample(&mut self, now: MonoTime, unix_s: i64) {
        let (buckets, keys, durable) = (&self.buckets, &self.keys, &self.durable);
        let total =
            |bucket: &Protected| bucket.keys().fold(Tally::ZERO, |sum, key| sum.plus(keys.total(key)));
        // What no entry covers are names that anybody may have invented.
        let totals = || {
            let covered = buckets.iter().filter(|bucket| bucket.entry().is_some());
            covered.map(move |bucket| (bucket.name(), total(bucket), durable.kill_of(bucket.name())))
        };
        self.history.on_time(now, Minute::of_unix(unix_s), &self.policy, totals);
    }

    /// What an aggregator that was cut off counted meanwhile is no surge of this minute, nor is what was counted before this
    /// controller began.
    pub(super) fn note_late(&mut self, entered: &Entered) {
        let all = entered.span.is_none_or(|span| span > REPORT_SPAN_MAX);
        for entry in entered.entries.iter().filter(|entry| all || entry.pedigree == Origin::TakenOver) {
            if let Some(own) = entry.own {
                self.keys.note_late(own, entry.delta);
            }
        }
    }

    /// What was offered minute by minute, and what was learned from it.
    #[must_use]
    pub const fn history(&self) -> &History {
        &self.history
    }

    /// The last good answer to each query of the policy, by URL and query.
    #[must_use]
    pub const fn answers(&self) -> &Answers {
        &self.answers
    }

    /// The minutes that are over and have to be written, and the buckets that need not be kept any more.
    pub fn take_unwritten(&mut self) -> (Vec<MinuteSamples>, Vec<Bucket>) {
        (self.history.take_unwritten(), self.history.take_gone())
    }

    /// A minute was written, and may be learned from. Returns what is to be kept now, and the limits that changed.
    pub fn on_minute_written(&mut self, minute: &MinuteSamples) -> (ToKeep, Changes) {
        let closed = self.history.on_written(minute, &self.policy);
        (closed, self.take_up_limits())
    }

    /// A minute could not be written.
    pub fn on_minute_lost(&mut self) {
        self.history.on_lost();
    }

    /// Goes on from what was kept of earlier days, and from the minutes written since.
    pub fn restore_history(
        &mut self,
        closed: BTreeMap<Bucket, Closed>,
        minutes: impl IntoIterator<Item = MinuteSamples>,
    ) {
        self.history.restore(closed, minutes, &self.policy);
        self.take_up_limits();
    }

    /// Adds days from elsewhere that are over. Returns what became of each, what is to be kept now, and the limits that
    /// changed.
    pub fn import_history(
        &mut self,
        days: &BTreeMap<(Bucket, Day), DaySamples>,
        today: Day,
        replace: bool,
    ) -> (FiledDays, ToKeep, Changes) {
        let (filed, closed) = self.history.import(days, today, replace, &self.policy);
        (filed, closed, self.take_up_limits())
    }

    /// Goes on from the answers that were kept, to queries that are still asked.
    pub fn restore_answers(
        &mut self,
        now: MonoTime,
        kept: impl IntoIterator<Item = ((String, String), Rate)>,
    ) {
        for (asked, rate) in kept {
            self.answers.entry(asked).or_insert(Answer { rate, at: now });
        }
        self.forget_answers();
        self.take_up_limits();
    }

    /// A query was answered. Returns the limits that changed.
    pub fn on_answer(&mut self, source: &Prometheus, answer: Answer) -> Changes {
        self.answers.insert((source.url.clone(), source.query.clone()), answer);
        self.forget_answers();
        self.take_up_limits()
    }

    /// What is not asked any more has no answer.
    pub(super) fn forget_answers(&mut self) {
        let exact = self.policy.exact_buckets().map(|(_, bucket)| bucket);
        let patterns = self.policy.patterns().map(|(_, bucket)| bucket);
        let asked: Vec<&Prometheus> = exact
            .chain(patterns)
            .filter_map(|bucket| match bucket.source() {
                LimitSource::Prometheus(source) => Some(source),
                _ => None,
            })
            .collect();
        self.answers.retain(|(url, query), _| {
            asked.iter().any(|source| source.url == *url && source.query == *query)
        });
    }

    /// Puts in force what limits have become, and returns those that changed.
    fn take_up_limits(&mut self) -> Changes {
        let mut changes = Vec::new();
        for bucket in &mut self.buckets {
            let limit = limit(&self.policy, &self.history, &self.answers, bucket.name());
            if bucket.set_limit(limit) {
                changes.push((bucket.name().clone(), limit));
            }
        }
        if !changes.is_empty() {
            self.welcome();
        }
        changes
    }
}

/// The limit of a bucket, wherever it comes from.
pub(super) fn limit(policy: &Policy, history: &History, answers: &Answers, bucket: &Bucket) -> Limit {
    let Some(of_bucket) = policy.bucket(bucket) else { return Limit::Unknown };
    match of_bucket.source() {
        LimitSource::Learned(learned) => history.limit(bucket, learned),
        LimitSource::Prometheus(source) => {
            let answer = answers.get(&(source.url.clone(), source.query.clone()));
            answer.map_or(Limit::Unknown, |answer| Limit::PerSecond(source.bounds.clamp(answer.rate)))
        }
        LimitSource::Unlimited | LimitSource::PerSecond(_) => of_bucket.limit(),
    }
}
