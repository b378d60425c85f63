//! The outcome of a scenario over all its seeds: the document that is printed.

use std::collections::BTreeMap;

use serde::Serialize;

use super::entitlement;
use super::figures::{Figures, Requests, TenantFigures, View};
use super::names::{self, NamesOutcome};
use super::series::Run;
use super::trace_hash::TraceHash;
use crate::scenario::Scenario;

/// Figures of one scenario. `worst_1s` is the worst of all seeds; shares of the requests are of all
/// seeds together, because few refusals have no median; every other figure is the median over the
/// seeds. A figure is absent if no seed has it.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Name of the scenario.
    pub scenario: String,
    /// Number of seeds.
    pub seeds: usize,
    /// Fingerprint of all runs together.
    pub trace_hash: TraceHash,
    /// Virtual seconds of all runs together.
    pub simulated_s: f64,
    /// Real seconds, if the caller has measured them.
    pub wall_s: Option<f64>,
    /// Figures by bucket.
    pub buckets: BTreeMap<String, BucketOutcome>,
}

/// Figures of one bucket; rates in requests per second, ratios to the limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(
    missing_docs,
    reason = "the names are those of the definitions in docs/reference/scenarios.md"
)]
pub struct BucketOutcome {
    pub limit_rps: Option<f64>,
    pub offered_rps: f64,
    pub admitted_rps: f64,
    pub long_run_error: Option<f64>,
    pub optimum_ratio: Option<f64>,
    pub worst_1s: Option<f64>,
    pub p99_1s: Option<f64>,
    pub goodput_lost: Option<f64>,
    pub would_drop_ratio: Option<f64>,
    pub lost: Option<f64>,
    pub mean_ratio: Option<f64>,
    pub settle_s: Settle,
    pub conformance_burst_s: Option<f64>,
    pub p99_10s: Option<f64>,
    pub worst_10s: Option<f64>,
    pub error_60s: Option<f64>,
    pub tenants: BTreeMap<String, TenantOutcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<NamesOutcome>,
}

/// Settling time after the last scripted change of the load, over the seeds, in seconds; absent if the
/// rate never settled, the load never stops changing, or there is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Settle {
    /// Median over the seeds.
    pub median: Option<f64>,
    /// 95th percentile over the seeds.
    pub p95: Option<f64>,
}

/// Figures of one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[expect(
    missing_docs,
    reason = "the names are those of the definitions in docs/reference/scenarios.md"
)]
pub struct TenantOutcome {
    pub offered_rps: f64,
    pub admitted_rps: f64,
    pub share_rps: Option<f64>,
    pub deviation: Option<f64>,
    pub drop_ratio: Option<f64>,
    pub lost: Option<f64>,
    pub own_limit: Option<f64>,
}

impl Outcome {
    /// Summarises the runs of a scenario.
    #[must_use]
    pub fn of(scenario: &Scenario, runs: &[Run]) -> Self {
        let mut trace_hash = TraceHash::default();
        runs.iter()
            .for_each(|run| trace_hash.write(run.trace.get()));
        let buckets = scenario.buckets.iter().enumerate();
        let buckets = buckets.map(|(at, bucket)| {
            let figures = BucketOutcome::of(scenario, runs, at, scenario.window(), false);
            (bucket.name.to_string(), figures)
        });
        Self {
            scenario: scenario.name.clone(),
            seeds: runs.len(),
            trace_hash,
            simulated_s: scenario.duration_s * runs.len() as f64,
            wall_s: None,
            buckets: buckets.collect(),
        }
    }
}

impl BucketOutcome {
    /// Returns the figures of the bucket at index `at` over `window_s`. With `v` only requests that
    /// enforcement would admit count as admitted.
    pub(crate) fn of(
        scenario: &Scenario,
        runs: &[Run],
        at: usize,
        window_s: (f64, f64),
        v: bool,
    ) -> Self {
        let loads = scenario
            .traffic
            .iter()
            .filter(|traffic| traffic.bucket == at);
        let changes: Option<Vec<f64>> = loads.map(|traffic| traffic.load.last_change()).collect();
        let last_change_s = changes.and_then(|changes| changes.into_iter().max_by(f64::total_cmp));
        let limit = scenario.limit_at(at, window_s.0);
        let view = View {
            window_s,
            limit,
            v,
            last_change_s,
        };
        let figures: Vec<Figures> = runs
            .iter()
            .map(|run| Figures::of(&run.buckets[at], &view))
            .collect();
        let over = |figure: fn(&Figures) -> Option<f64>| sorted(figures.iter().filter_map(figure));
        let mid = |figure| median(&over(figure));
        let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
        let settle = over(|figures| figures.settle_s);
        let requests: Requests = figures.iter().map(|figures| figures.requests).sum();
        Self {
            limit_rps: limit,
            offered_rps: mid(|figures| Some(figures.offered_rps)).unwrap_or_default(),
            admitted_rps: mid(|figures| Some(figures.admitted_rps)).unwrap_or_default(),
            long_run_error: mid(|figures| figures.long_run_error),
            worst_1s: over(|figures| figures.worst_1s).last().copied(),
            p99_1s: mid(|figures| figures.p99_1s),
            goodput_lost: mid(|figures| figures.goodput_lost),
            would_drop_ratio: requests.drop_ratio(),
            lost: limit.and_then(|_| requests.lost()),
            optimum_ratio: requests.optimum_ratio(),
            mean_ratio: mid(|figures| figures.mean_ratio),
            settle_s: Settle {
                median: finite(median(&settle)),
                p95: finite(p95(&settle)),
            },
            conformance_burst_s: mid(|figures| figures.conformance_burst_s),
            p99_10s: mid(|figures| figures.p99_10s),
            worst_10s: mid(|figures| figures.worst_10s),
            error_60s: mid(|figures| figures.error_60s),
            tenants: tenants(scenario, runs, at, window_s, limit, &figures),
            names: NamesOutcome::of(scenario, runs, at, window_s),
        }
    }
}

/// Returns the figures by tenant. A tenant's entitlement in a run depends on the rates offered in
/// that run.
fn tenants(
    scenario: &Scenario,
    runs: &[Run],
    at: usize,
    window_s: (f64, f64),
    limit: Option<f64>,
    figures: &[Figures],
) -> BTreeMap<String, TenantOutcome> {
    let bucket = &scenario.buckets[at];
    let policy = scenario.policy_at(window_s.0);
    let shares: Vec<Option<Vec<f64>>> = figures
        .iter()
        .map(|figures| {
            let offered: Vec<f64> = figures
                .tenants
                .iter()
                .map(|tenant| tenant.offered_rps)
                .collect();
            Some(entitlement::shares(
                policy,
                &bucket.name,
                limit?,
                &bucket.tenants,
                &offered,
            ))
        })
        .collect();
    let outcome = |index: usize| {
        let seeds = figures.iter().zip(&shares).map(|(figures, shares)| {
            let share = shares
                .as_ref()
                .and_then(|shares| shares.get(index).copied());
            (figures.tenants[index], share)
        });
        let over = |figure: fn(&(TenantFigures, Option<f64>)) -> Option<f64>| {
            median(&sorted(seeds.clone().filter_map(|seed| figure(&seed))))
        };
        let requests: Requests = figures
            .iter()
            .map(|figures| figures.tenants[index].requests)
            .sum();
        TenantOutcome {
            offered_rps: over(|(tenant, _)| Some(tenant.offered_rps)).unwrap_or_default(),
            admitted_rps: over(|(tenant, _)| Some(tenant.admitted_rps)).unwrap_or_default(),
            share_rps: over(|(_, share)| *share),
            deviation: over(|(tenant, share)| {
                share
                    .filter(|share| *share > 0.0)
                    .map(|share| tenant.admitted_rps / share - 1.0)
            }),
            drop_ratio: requests.drop_ratio(),
            lost: limit.and_then(|_| requests.lost()),
            own_limit: names::of_own_limit(scenario, runs, (at, index), window_s),
        }
    };
    let names = bucket.tenants.iter().enumerate();
    names
        .map(|(index, tenant)| (tenant.to_string(), outcome(index)))
        .collect()
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Returns the median of sorted values; of an even number of values, the mean of the middle two.
fn median(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(sorted[sorted.len() / 2 - 1], upper))
}

/// Returns the 95th percentile of sorted values by nearest rank.
fn p95(sorted: &[f64]) -> Option<f64> {
    sorted
        .get((sorted.len() * 95).div_ceil(100).checked_sub(1)?)
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_percentiles_are_of_sorted_values() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, 2.0, 9.0]), Some(2.0));
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), Some(3.0));
        assert_eq!(median(&[1.0, f64::INFINITY]), Some(f64::INFINITY));
        let twenty: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(
            (p95(&twenty), p95(&[3.0]), p95(&[])),
            (Some(19.0), Some(3.0), None)
        );
    }
}
