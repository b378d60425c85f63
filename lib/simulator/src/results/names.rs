//! The names of a bucket's unlisted class: the admissions of each in comparison with its fair part.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;

use super::entitlement;
use super::figures::TenantFigures;
use super::series::{BIN_S, NAME_BINS, Run};
use crate::scenario::Scenario;

const SLOT_S: f64 = NAME_BINS as f64 * BIN_S;

/// Admitted / fair over the names of all seeds together. Fair is the max-min division of the
/// entitlement of the class `default` over the offers of its names.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[expect(
    missing_docs,
    reason = "the names are those of the definitions in docs/reference/scenarios.md"
)]
pub struct NameFigures {
    pub min: f64,
    pub p1: f64,
    pub mean: f64,
    pub p99: f64,
    pub beyond: f64,
}

/// Figures of all names of a bucket, and of each tenant's names.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NamesOutcome {
    /// Figures of all names.
    #[serde(flatten)]
    pub all: NameFigures,
    /// Figures of the names by tenant of the scenario.
    #[serde(flatten)]
    pub tenants: BTreeMap<String, NameFigures>,
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    tenant: usize,
    offered: f64,
    admitted: f64,
}

/// A name's admitted / fair, and whether chance cannot explain its distance from 1.
#[derive(Clone, Copy, Debug)]
struct Served {
    tenant: usize,
    ratio: f64,
    beyond: bool,
}

impl NamesOutcome {
    /// Returns the figures of the bucket at index `at` over the whole slots in a window; `None` if
    /// no name is counted there, or the limit is not a number.
    pub(crate) fn of(
        scenario: &Scenario,
        runs: &[Run],
        at: usize,
        window_s: (f64, f64),
    ) -> Option<Self> {
        let bucket = &scenario.buckets[at];
        let slots = slots_in(window_s);
        if slots.is_empty() || bucket.names.iter().all(|names| *names == 0) {
            return None;
        }
        let served: Vec<Served> = runs
            .iter()
            .flat_map(|run| served(scenario, run, at, &slots))
            .collect();
        let of =
            |tenant: usize| NameFigures::of(served.iter().filter(|name| name.tenant == tenant));
        let tenants = bucket
            .tenants
            .iter()
            .enumerate()
            .filter(|(tenant, _)| bucket.names[*tenant] > 0);
        let tenants = tenants.filter_map(|(tenant, name)| Some((name.to_string(), of(tenant)?)));
        Some(Self {
            all: NameFigures::of(served.iter())?,
            tenants: tenants.collect(),
        })
    }
}

impl NameFigures {
    fn of<'a>(served: impl Iterator<Item = &'a Served>) -> Option<Self> {
        let (mut ratios, mut beyond) = (Vec::new(), 0.0);
        for name in served {
            ratios.push(name.ratio);
            beyond += f64::from(name.beyond);
        }
        ratios.sort_by(f64::total_cmp);
        let count = ratios.len() as f64;
        // By nearest rank.
        let rank = |share: f64| {
            ratios
                .get(((count * share).ceil() as usize).max(1) - 1)
                .copied()
        };
        let mean = ratios.iter().sum::<f64>() / count;
        Some(Self {
            min: *ratios.first()?,
            p1: rank(0.01)?,
            mean,
            p99: rank(0.99)?,
            beyond: beyond / count,
        })
    }
}

/// Returns the largest admissions of any of a tenant's names in two adjacent slots (10 s), relative to the bound of its own
/// limit: 1.05 times the limit and three standard deviations. `None` without a limit, names or two slots.
pub(crate) fn of_own_limit(
    scenario: &Scenario,
    runs: &[Run],
    (at, tenant): (usize, usize),
    window_s: (f64, f64),
) -> Option<f64> {
    let bucket = &scenario.buckets[at];
    let limit = scenario
        .policy_at(window_s.0)
        .tenant_limit(&bucket.tenants[tenant], &bucket.name);
    let (limit, _) = limit.filter(|_| bucket.names[tenant] > 0)?;
    let due = limit.per_second() * 2.0 * SLOT_S;
    let bound = 1.05 * due + 3.0 * due.sqrt();
    let slots = slots_in(window_s);
    let windows = slots.clone().zip(slots.skip(1));
    let worst = runs.iter().flat_map(|run| {
        let names = &run.buckets[at].names[tenant];
        let windows = windows.clone();
        windows.flat_map(|(first, last)| names.between(&(first..last + 1)))
    });
    worst.map(|[_, admitted]| admitted / bound).reduce(f64::max)
}

/// Returns the slots of separate counts that lie in a window.
fn slots_in((from, to): (f64, f64)) -> Range<usize> {
    (from / SLOT_S - 1e-9).ceil() as usize..(to / SLOT_S + 1e-9) as usize
}

/// Returns the names with separate counts of a run that offered anything, each against its fair part.
fn served(scenario: &Scenario, run: &Run, at: usize, slots: &Range<usize>) -> Vec<Served> {
    let (bucket, series) = (&scenario.buckets[at], &run.buckets[at]);
    let (from, to) = (slots.start * NAME_BINS, slots.end * NAME_BINS);
    let (begins, seconds) = (from as f64 * BIN_S, (to - from) as f64 * BIN_S);
    let policy = scenario.policy_at(begins);
    let Some(limit) = scenario.limit_at(at, begins) else {
        return Vec::new();
    };
    let totals: Vec<TenantFigures> = series
        .tenants
        .iter()
        .map(|totals| TenantFigures::of(totals, from, to, true))
        .collect();
    let offered: Vec<f64> = totals.iter().map(|tenant| tenant.offered_rps).collect();
    let allocation =
        entitlement::of_class(policy, &bucket.name, limit, &bucket.tenants, &offered) * seconds;
    let mut claims = Vec::new();
    let unlisted = |tenant: &usize| !entitlement::is_own(policy, &bucket.tenants[*tenant]);
    for tenant in (0..bucket.tenants.len()).filter(unlisted) {
        let names = &series.names[tenant];
        let [offered, admitted] =
            [totals[tenant].offered_rps, totals[tenant].admitted_rps].map(|rps| rps * seconds);
        if bucket.names[tenant] > 0 {
            let sums = names.between(slots);
            claims.extend(sums.into_iter().map(|[offered, admitted]| Claim {
                tenant,
                offered,
                admitted,
            }));
        } else if scenario
            .traffic
            .iter()
            .any(|entry| entry.names.is_some() && (entry.bucket, entry.tenant) == (at, tenant))
        {
            // Each of these names is counted as used once.
            let once = Claim {
                tenant,
                offered: 1.0,
                admitted: admitted / offered,
            };
            claims.extend(std::iter::repeat_n(once, offered as usize));
        } else {
            claims.push(Claim {
                tenant,
                offered,
                admitted,
            });
        }
    }
    claims.retain(|claim| claim.offered > 0.0);
    let level = level(
        claims.iter().map(|claim| claim.offered).collect(),
        allocation,
    );
    claims.retain(|claim| bucket.names[claim.tenant] > 0);
    let served = |claim: Claim| {
        let fair = claim.offered.min(level);
        let beyond = (claim.admitted - fair).abs() > (0.1 * fair).max(3.0 * fair.sqrt()).max(3.0);
        Served {
            tenant: claim.tenant,
            ratio: claim.admitted / fair,
            beyond,
        }
    };
    claims.into_iter().map(served).collect()
}

/// Returns the maximum that a name gets if a capacity is divided by max-min.
fn level(mut demands: Vec<f64>, capacity: f64) -> f64 {
    demands.sort_by(f64::total_cmp);
    let (mut left, mut names) = (capacity, demands.len() as f64);
    for demand in demands {
        if demand * names >= left {
            return left / names;
        }
        left -= demand;
        names -= 1.0;
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_divided_by_max_min() {
        for (demands, capacity, expected) in [
            (vec![5.0, 1.0, 9.0], 9.0, 4.0),
            (vec![5.0, 1.0, 9.0], 15.0, 9.0),
            (vec![5.0, 1.0, 9.0], 16.0, f64::INFINITY),
            (vec![2.0; 4], 2.0, 0.5),
        ] {
            assert_eq!(level(demands.clone(), capacity), expected, "{demands:?}");
        }
    }

    #[test]
    fn percentiles_and_outliers_are_of_all_names() {
        let name = |ratio: u32| Served {
            tenant: 0,
            ratio: f64::from(ratio) / 100.0,
            beyond: ratio > 199,
        };
        let served: Vec<Served> = (1..=200).map(name).collect();
        let NameFigures {
            min,
            p1,
            mean,
            p99,
            beyond,
        } = NameFigures::of(served.iter()).unwrap();
        assert_eq!((min, p1, p99, beyond), (0.01, 0.02, 1.98, 0.005));
        assert!((mean - 1.005).abs() < 1e-9);
        assert_eq!(NameFigures::of([].iter()), None);
    }
}
