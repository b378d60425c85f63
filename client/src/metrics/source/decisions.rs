//! Decisions by mode, and refusals by reason.

use std::collections::BTreeMap;

use plimsoll_core::decision::{Mode, Reason, ShownMode};
use plimsoll_core::names::Bucket;
use plimsoll_core::report::Counts;
use plimsoll_core::stats::AdmissionFigures;

use super::Source;
use crate::feed::Control;
use crate::limiter::layered::QuotaTally;
use crate::metrics::model::Family;

/// The counts of one bucket by the mode in which they were made; `None` where it is unknown.
#[derive(Debug)]
pub(super) struct ByMode {
    mode: Option<Mode>,
    decided: Tally,
    by_mode: BTreeMap<Option<Mode>, Tally>,
}

/// The decisions of one bucket.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    counts: Counts,
    by_quotas: QuotaTally,
}

impl Tally {
    fn plus(self, other: Self) -> Self {
        let by_quotas = std::array::from_fn(|at| self.by_quotas[at].saturating_add(other.by_quotas[at]));
        Self { counts: self.counts.plus(other.counts), by_quotas }
    }

    fn since(self, earlier: Self) -> Self {
        let by_quotas = std::array::from_fn(|at| self.by_quotas[at].saturating_sub(earlier.by_quotas[at]));
        Self { counts: self.counts.since(earlier.counts), by_quotas }
    }

    /// Returns the requests by result.
    fn results(self) -> [(&'static str, u64); 8] {
        let Self { counts, by_quotas: [exceeded, degraded, would_exceeded, would_degraded, repeated] } = self;
        let by_quota = counts.quota_dropped.saturating_add(counts.would_quota_dropped);
        [
            ("admit", counts.passed().saturating_sub(by_quota)),
            ("drop", counts.dropped),
            ("guard_drop", counts.guard_dropped),
            ("would_drop", counts.would_dropped),
            ("quota_drop", exceeded),
            ("quota_degraded", degraded),
            ("would_quota_drop", would_exceeded.saturating_add(would_degraded)),
            ("quota_repeated", repeated),
        ]
    }
}

/// Returns the decisions, which are read only if `is_counted`.
pub(super) fn decisions(source: &Source, is_counted: bool) -> Family {
    let control = source.limiter.control.as_ref().filter(|_| is_counted);
    let counted = control.map_or_else(Vec::new, |control| counts(control));
    let mut decisions = source.by_mode();
    let mut series = Vec::new();
    for (bucket, counts, mode) in counted {
        let unseen = || ByMode { mode, decided: Tally::default(), by_mode: BTreeMap::new() };
        let seen = decisions.entry(bucket.clone()).or_insert_with(unseen);
        // Decisions since the last export count for the mode of the last export.
        let sum = seen.by_mode.entry(seen.mode).or_default();
        *sum = sum.plus(counts.since(seen.decided));
        (seen.mode, seen.decided) = (mode, counts);
        for (mode, counts) in &seen.by_mode {
            for (result, count) in counts.results() {
                let mode = ShownMode::from(*mode);
                series.push((vec![bucket.to_string(), mode.to_string(), result.to_owned()], count));
            }
        }
    }
    let help = "Decisions by bucket, mode and result (admit, drop, guard_drop, would_drop; by exact quotas quota_drop, \
                quota_degraded, would_quota_drop, quota_repeated: before the coin).";
    Family::counter("plimsoll_decisions_total", help, &["bucket", "mode", "result"], series)
}

/// Returns the decisions of each bucket so far, and its mode.
fn counts(control: &Control) -> Vec<(Bucket, Tally, Option<Mode>)> {
    control.subscription.with(|subscription, _| {
        let mut buckets: BTreeMap<Bucket, Counts> = BTreeMap::new();
        for (key, counts) in subscription.counts() {
            let sum = buckets.entry(key.bucket).or_default();
            *sum = sum.plus(counts);
        }
        let with_mode = |(bucket, counts): (Bucket, Counts)| {
            let mode = subscription.mode_of(&bucket);
            let place = control.table.known_bucket(bucket.as_str());
            let by_quotas = place.map(|place| control.table.layered.tally(place.bucket)).unwrap_or_default();
            (bucket, Tally { counts, by_quotas }, mode)
        };
        buckets.into_iter().map(with_mode).collect()
    })
}

/// Returns the refusals by reason.
pub(super) fn refusals(control: &Control) -> Family {
    let refusals = control.subscription.with(|subscription, _| subscription.refusals());
    let series = refusals.iter().flat_map(|(bucket, by_reason)| {
        Reason::ALL.iter().zip(by_reason).flat_map(move |(reason, refused)| {
            [("true", refused.enforced), ("false", refused.would)].map(|(enforced, count)| {
                ([bucket.as_str(), reason.as_str(), enforced].map(str::to_owned).to_vec(), count)
            })
        })
    });
    let help =
        "Refusals by bucket and reason; enforced=false: admitted, because the refusal is not enforced here.";
    Family::counter("plimsoll_refusals_total", help, &["bucket", "reason", "enforced"], series)
}

/// Returns what the counts of the last seconds show of each bucket.
pub(super) fn admissions(control: &Control) -> impl Iterator<Item = Family> {
    let figures: Vec<(String, AdmissionFigures)> = control.subscription.with(|subscription, _| {
        subscription.admission_figures().map(|(bucket, figures)| (bucket.to_string(), figures)).collect()
    });
    AdmissionFigures::GAUGES.into_iter().map(move |(name, help, value)| {
        let series =
            figures.iter().filter_map(|(bucket, figures)| Some((vec![bucket.clone()], value(figures)?)));
        Family::gauge(name, help, &["bucket"], series)
    })
}
