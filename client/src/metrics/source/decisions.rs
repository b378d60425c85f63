//! Decisions by mode, and refusals by reason.

use std::collections::BTreeMap;

use plimsoll_core::decision::{Mode, Reason, ShownMode};
use plimsoll_core::names::Bucket;
use plimsoll_core::report::Counts;
use plimsoll_core::stats::metrics::{Metric, Series, rows};

use super::Source;
use crate::feed::Control;
use crate::hot::sync::lock;
use crate::limiter::layered::QuotaTally;
use crate::subscription::Subscription;

#[derive(Debug)]
pub(super) struct ByMode {
    /// The mode at the last export; `None` while it is unknown.
    mode: Option<Mode>,
    /// All decisions up to the last export.
    decided: Results,
    by_mode: BTreeMap<Option<Mode>, Results>,
}

const RESULTS: [&str; 8] = [
    "admit",
    "drop",
    "guard_drop",
    "would_drop",
    "quota_drop",
    "quota_degraded",
    "would_quota_drop",
    "quota_repeated",
];

/// Decisions in the order of [`RESULTS`].
type Results = [u64; RESULTS.len()];

fn results(counts: Counts, by_quotas: QuotaTally) -> Results {
    let [exceeded, degraded, would_exceeded, would_degraded, repeated] = by_quotas;
    let by_quota = counts
        .quota_dropped
        .saturating_add(counts.would_quota_dropped);
    [
        counts.passed().saturating_sub(by_quota),
        counts.dropped,
        counts.guard_dropped,
        counts.would_dropped,
        exceeded,
        degraded,
        would_exceeded.saturating_add(would_degraded),
        repeated,
    ]
}

pub(super) const DECISIONS: Metric<Source> = Metric::<Source>::counter(
    "plimsoll_decisions_total",
    &["bucket", "mode", "result"],
    "Decisions of this process: `admit`, `drop` (by the coin), `guard_drop` (by the guard), `would_drop` (by either, not \
     enforced), and by exact quotas, behind both: `quota_drop` (used up), `quota_degraded` (the store does not answer), \
     `would_quota_drop` (either, not enforced), `quota_repeated` (from the memory of a refusal, before the coin).",
    decisions,
)
.first();

pub(super) const RETRIED: Metric<Source> = Metric::counter(
    "plimsoll_retried_total",
    &["bucket"],
    "Requests of this process that their callers marked as sent again. Part of all results but `quota_repeated`.",
    |source| {
        let Some(control) = &source.limiter.control else {
            return Vec::new();
        };
        let buckets = control
            .subscription
            .with(|subscription, _| by_bucket(subscription));
        rows(
            buckets
                .into_iter()
                .map(|(bucket, counts)| ([bucket.to_string()], counts.retried)),
        )
    },
);

pub(super) const REFUSALS: Metric<Source> = Metric::counter(
    "plimsoll_refusals_total",
    &["bucket", "reason", "enforced"],
    "Refusals of this process by reason; with `enforced` = `false` those that were not carried out here.",
    |source| {
        let Some(control) = &source.limiter.control else {
            return Vec::new();
        };
        let refusals = control
            .subscription
            .with(|subscription, _| subscription.refusals());
        rows(refusals.iter().flat_map(|(bucket, by_reason)| {
            Reason::ALL
                .iter()
                .zip(by_reason)
                .flat_map(move |(reason, refused)| {
                    [("true", refused.enforced), ("false", refused.would)].map(
                        |(enforced, count)| ([bucket.as_str(), reason.as_str(), enforced], count),
                    )
                })
        }))
    },
);

fn decisions(source: &Source) -> Vec<Series> {
    let Some(control) = &source.limiter.control else {
        return Vec::new();
    };
    let mut decisions = lock(&source.decisions);
    let mut series = Vec::new();
    for (bucket, counts, mode) in counts(control) {
        let unseen = || ByMode {
            mode,
            decided: Results::default(),
            by_mode: BTreeMap::new(),
        };
        let seen = decisions.entry(bucket.clone()).or_insert_with(unseen);
        // Decisions since the last export count for the mode of the last export.
        let sums = seen
            .by_mode
            .entry(std::mem::replace(&mut seen.mode, mode))
            .or_default();
        for ((sum, before), now) in sums.iter_mut().zip(&mut seen.decided).zip(counts) {
            // A refusal of a quota is counted after its admission, so that an admission may be taken back.
            *sum += now.saturating_sub(*before);
            *before = now.max(*before);
        }
        for (mode, sums) in &seen.by_mode {
            let mode = ShownMode::from(*mode);
            let labels = |result: &str| [bucket.to_string(), mode.to_string(), result.to_owned()];
            series.extend(
                RESULTS
                    .into_iter()
                    .zip(sums)
                    .map(|(result, count)| (labels(result), *count)),
            );
        }
    }
    rows(series)
}

fn counts(control: &Control) -> Vec<(Bucket, Results, Option<Mode>)> {
    control.subscription.with(|subscription, _| {
        let buckets = by_bucket(subscription);
        let with_mode = |(bucket, counts): (Bucket, Counts)| {
            let mode = subscription.mode_of(&bucket);
            let place = control.table.known_bucket(bucket.as_str());
            let by_quotas = place
                .map(|place| control.table.layered.tally(place.bucket))
                .unwrap_or_default();
            (bucket, results(counts, by_quotas), mode)
        };
        buckets.into_iter().map(with_mode).collect()
    })
}

fn by_bucket(subscription: &mut Subscription) -> BTreeMap<Bucket, Counts> {
    let mut buckets: BTreeMap<Bucket, Counts> = BTreeMap::new();
    for (key, counts) in subscription.counts() {
        let sum = buckets.entry(key.bucket).or_default();
        *sum = sum.plus(counts);
    }
    buckets
}
