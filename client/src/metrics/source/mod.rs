//! The metrics of a limiter, read from its state.

mod decisions;
mod feed;
mod requests;
#[cfg(feature = "quota")]
mod store;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use plimsoll_core::names::Bucket;
use plimsoll_core::stats::metrics::{Family, Metric, Series, Value, families, maybe, one, rows};
use plimsoll_core::stats::{ADMISSIONS, BucketFigures};

use crate::feed::Control;
use crate::limiter::Limiter;
use decisions::ByMode;

/// The metrics that every limiter has.
const LIMITER: [Metric<Source>; 5] = [
    Metric::counter(
        "plimsoll_decisions_untracked_total",
        &[],
        "Requests admitted without a key to count them for: their bucket has no room or an invalid name.",
        |source| one(source.limiter.table.untracked()),
    ),
    Metric::counter(
        "plimsoll_tenants_invalid_total",
        &[],
        "Requests whose tenant is empty, or, over HTTP, repeated or not UTF-8, and that count for the class `default`.",
        |source| one(source.limiter.table.invalid_tenants()),
    ),
    Metric::<Source>::gauge(
        "plimsoll_setup_problems",
        &["problem", "subject"],
        "1 while the limiter is wired wrongly, by kind of problem and its bucket, zone, address or route.",
        |source| {
            let problems = source.limiter.setup_problems();
            rows(problems.iter().map(|problem| ([problem.kind(), problem.subject()], true)))
        },
    )
    .first(),
    Metric::gauge("plimsoll_waiters", &[], "Calls that wait for their turn.", |source| {
        one(source.limiter.table.waiting.waiters())
    }),
    Metric::counter(
        "plimsoll_waits_total",
        &["result"],
        "Calls that were not admitted at once and have ended, by result: `admitted`, `timed_out` at their deadline, \
         `overflowed` because too many waited.",
        |source| rows(source.limiter.table.waiting.results().map(|(result, waits)| ([result], waits))),
    ),
];

/// A limiter, and the state that an export leaves for the next.
#[derive(Debug)]
pub(super) struct Source {
    limiter: Limiter,
    /// The decisions of each bucket by mode, as of the last export.
    decisions: Mutex<HashMap<Bucket, ByMode>>,
}

/// Returns the metrics of a limiter, without those of its buckets' last seconds.
pub(super) fn table() -> Vec<Metric<Source>> {
    let mut table = vec![decisions::DECISIONS, decisions::REFUSALS];
    table.extend(LIMITER);
    #[cfg(feature = "quota")]
    table.extend(store::STORE);
    #[cfg(feature = "middleware")]
    table.push(requests::PASSED);
    table.extend(feed::FEED);
    table.extend(requests::RESPONSES);
    table
}

impl Source {
    pub(super) fn new(limiter: Limiter) -> Self {
        Self { limiter, decisions: Mutex::default() }
    }

    /// Returns all families with their present series.
    pub(super) fn families(&self) -> Vec<Family> {
        let mut all = families(&table(), self);
        all.extend(families(&ADMISSIONS, &self.admissions()));
        all
    }

    /// What the counts of the last seconds show of each bucket.
    fn admissions(&self) -> BucketFigures {
        let Some(control) = &self.limiter.control else { return BucketFigures::new() };
        control.subscription.with(|subscription, _| {
            let figures = subscription.admission_figures();
            figures.map(|(bucket, figures)| (bucket.to_string(), figures)).collect()
        })
    }

    /// Reads one value of the feed; none without a feed.
    fn feed<V: Into<Value>>(&self, read: impl FnOnce(&Control) -> Option<V>) -> Vec<Series> {
        maybe(self.limiter.control.as_ref().and_then(|control| read(control)))
    }

    fn by_mode(&self) -> MutexGuard<'_, HashMap<Bucket, ByMode>> {
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
