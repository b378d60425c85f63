//! The metrics of a limiter, read from its state. Only decisions by mode have a state of their own, which each export
//! brings up to date.

mod decisions;
mod feed;
mod requests;
#[cfg(feature = "quota")]
mod store;

use std::collections::HashMap;
use std::sync::Mutex;

use plimsoll_core::names::Bucket;
use plimsoll_core::stats::metrics::{self, About, Family, Metric, families, one, rows};
use plimsoll_core::stats::{ADMISSIONS, BucketFigures};

use crate::limiter::Limiter;
use decisions::ByMode;

const LIMITER: &[Metric<Source>] = &[
    decisions::DECISIONS,
    decisions::RETRIED,
    decisions::REFUSALS,
    requests::PASSED,
    requests::MATCHES,
    requests::TENANTS,
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
    Metric::counter(
        "plimsoll_plan_mismatches_total",
        &[],
        "Requests with another plan than the first one of their tenant, which counts until the tenant is idle for a minute.",
        |source| one(source.limiter.table.other_plans()),
    ),
    Metric::<Source>::gauge(
        "plimsoll_setup_problems",
        &["problem", "subject"],
        "1 while the limiter is wired wrongly, by kind of problem and its bucket, plan, zone, address, rule or source of \
         tenants.",
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

#[derive(Debug)]
pub(super) struct Source {
    limiter: Limiter,
    /// The decisions of each bucket by mode. Each export adds those since the one before, for the mode that the bucket
    /// had then.
    decisions: Mutex<HashMap<Bucket, ByMode>>,
}

pub(super) fn described() -> Vec<About> {
    let mut all = metrics::described(LIMITER);
    #[cfg(feature = "quota")]
    all.extend(metrics::described(&store::STORE));
    all.extend(metrics::described(&feed::FEED));
    all.extend(metrics::described(&requests::RESPONSES));
    all.extend(metrics::described(&ADMISSIONS));
    all
}

impl Source {
    pub(super) fn new(limiter: Limiter) -> Self {
        Self {
            limiter,
            decisions: Mutex::default(),
        }
    }

    pub(super) fn families(&self) -> Vec<Family> {
        let mut all = families(LIMITER, self);
        #[cfg(feature = "quota")]
        if let Some(counters) = self
            .limiter
            .table
            .layered
            .store()
            .and_then(|store| store.counters())
        {
            all.extend(families(&store::STORE, &counters));
        }
        if let Some(control) = &self.limiter.control {
            all.extend(families(&feed::FEED, control));
            let admissions: BucketFigures = control.subscription.with(|subscription, _| {
                all.extend(families(&requests::RESPONSES, &subscription.responses()));
                let figures = subscription.admission_figures();
                figures
                    .map(|(bucket, figures)| (bucket.to_string(), figures))
                    .collect()
            });
            all.extend(families(&ADMISSIONS, &admissions));
        }
        all
    }
}
