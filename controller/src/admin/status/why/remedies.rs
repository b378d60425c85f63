//! Changes of the policy that would help a tenant, each with its effect by the law's own code on the traffic of now.

use plimsoll_core::law::{Claimant, Division};
use plimsoll_core::names::{Bucket, Tenant};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Refusals below this share count as none.
const NONE: f64 = 0.005;
/// The part of the refusals that a remedy takes away at least.
const NOTABLE: f64 = 0.1;
/// The share of its requests that a remedy may have another tenant refused, unless the tenant itself is refused more now.
const HARM_MAX: f64 = 0.75;
/// Steps in the search for a limit: the last one is a millionth of the first.
const STEPS: usize = 20;
const OTHERS_MAX: usize = 3;

/// A change and its effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Remedy {
    /// The change, as a setting of the policy files.
    pub change: String,
    /// The share of its requests that the tenant is refused now, by the law.
    pub refused_before: f64,
    /// The share after the change.
    pub refused_after: f64,
    /// The other tenants that the change moves most, at most three.
    pub others: Vec<Moved>,
}

/// The effect of a remedy on another tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Moved {
    /// The tenant.
    pub tenant: Tenant,
    /// The share of its requests that it is refused now.
    pub refused_before: f64,
    /// The share after the change.
    pub refused_after: f64,
}

/// A tenant that is refused in a bucket.
#[derive(Debug)]
pub(super) struct Case<'a> {
    pub(super) bucket: &'a Bucket,
    pub(super) limit: f64,
    /// In the order of `claimants`.
    pub(super) tenants: &'a [Tenant],
    pub(super) claimants: &'a [Claimant],
    pub(super) at: usize,
    /// The weight in the policy; that of its claim may be boosted.
    pub(super) weight: f64,
    /// Settings of a class are under another name in the files.
    pub(super) owner: String,
}

impl Case<'_> {
    /// Returns the changes that lower the refusals of the tenant, at most three. O(K log K) for K tenants.
    pub(super) fn remedies(&self) -> Vec<Remedy> {
        let before = refused(self.limit, self.claimants);
        let Some(claimant) = self.claimants.get(self.at).copied() else {
            return Vec::new();
        };
        let now = before.get(self.at).copied().unwrap_or_default();
        if now < NONE {
            return Vec::new();
        }
        let whole = claimant.offered.ceil();
        // What each claimant is refused after a change of the tenant's claim.
        let changed = |change: Claimant| {
            let mut claimants = self.claimants.to_vec();
            claimants[self.at] = change;
            refused(self.limit, &claimants)
        };
        let owner = &self.owner;
        let mut tried = Vec::new();
        if claimant.demand() < claimant.offered {
            let after = changed(Claimant {
                tenant_limit: whole,
                ..claimant
            });
            tried.push((format!("limit {whole:.0} of {owner}"), after));
        }
        let harms = |after: &[f64]| {
            let is_harmed =
                |(before, after): (&f64, &f64)| *after > now.max(HARM_MAX) && before < after;
            before.iter().zip(after).any(is_harmed)
        };
        let mut weight = None;
        for factor in [2.0, 3.0, 4.0, 6.0, 8.0] {
            let after = changed(Claimant {
                weight: claimant.weight * factor,
                ..claimant
            });
            if harms(&after) {
                break;
            }
            let is_halved = after[self.at] <= now / 2.0;
            let change = format!("weight {} of {owner}", self.weight * factor);
            weight = Some((change, after));
            if is_halved {
                break;
            }
        }
        tried.extend(weight);
        if claimant.floor < claimant.demand() {
            let floor = claimant.demand().ceil();
            let after = changed(Claimant { floor, ..claimant });
            tried.push((format!("floor_rps {floor:.0} of {owner}"), after));
        }
        let limit = self.limit_without_refusals();
        let change = format!("limit {limit:.0} of {}", self.bucket);
        tried.push((change, refused(limit, self.claimants)));
        let remedies = tried.into_iter().filter_map(|(change, after)| {
            let refused_after = after.get(self.at).copied()?;
            let is_notable = now - refused_after >= (now * NOTABLE).max(NONE);
            (is_notable && !harms(&after)).then(|| Remedy {
                change,
                refused_before: now,
                refused_after,
                others: self.moved(&before, &after),
            })
        });
        remedies.take(3).collect()
    }

    /// The lowest limit of the bucket at which the law refuses the tenant nothing; if its own limit stops it, the one at
    /// which all that is asked fits.
    fn limit_without_refusals(&self) -> f64 {
        let demand: f64 = self.claimants.iter().map(Claimant::demand).sum();
        let (mut low, mut high) = (self.limit, demand.max(self.limit));
        for _ in 0..STEPS {
            let middle = (low + high) / 2.0;
            match refused(middle, self.claimants)[self.at] < NONE / 10.0 {
                true => high = middle,
                false => low = middle,
            }
        }
        high.ceil()
    }

    fn moved(&self, before: &[f64], after: &[f64]) -> Vec<Moved> {
        let each = self.tenants.iter().zip(before.iter().zip(after));
        let mut moved: Vec<Moved> = each
            .enumerate()
            .filter(|(at, (_, (before, after)))| *at != self.at && (*before - *after).abs() >= NONE)
            .map(|(_, (tenant, (before, after)))| Moved {
                tenant: tenant.clone(),
                refused_before: *before,
                refused_after: *after,
            })
            .collect();
        let change = |moved: &Moved| (moved.refused_after - moved.refused_before).abs();
        moved.sort_by(|one, other| change(other).total_cmp(&change(one)));
        moved.truncate(OTHERS_MAX);
        moved
    }
}

/// Returns the share that the law refuses each claimant; one value for each.
fn refused(limit: f64, claimants: &[Claimant]) -> Vec<f64> {
    let mut division = Division::default();
    division.divide(limit, limit, claimants);
    let given = claimants.iter().zip(&division.allocations);
    given
        .map(|(claimant, allocation)| match claimant.offered > 0.0 {
            true => (1.0 - allocation / claimant.offered).max(0.0),
            false => 0.0,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimant(offered: f64, weight: f64) -> Claimant {
        Claimant {
            offered,
            weight,
            floor: 0.0,
            tenant_limit: f64::INFINITY,
        }
    }

    fn remedies(limit: f64, claimants: &[Claimant]) -> Vec<(String, u32, u32)> {
        let names = ["acme", "corner-shop", "default"];
        let tenants: Vec<Tenant> = names
            .iter()
            .map(|name| Tenant::new(name).unwrap())
            .collect();
        let case = Case {
            bucket: &Bucket::new("orders").unwrap(),
            limit,
            tenants: &tenants,
            claimants,
            at: 0,
            weight: claimants[0].weight,
            owner: "acme".to_owned(),
        };
        let percent = |share: f64| (share * 100.0).round() as u32;
        let shown = case.remedies().into_iter();
        shown
            .map(|it| {
                (
                    it.change,
                    percent(it.refused_before),
                    percent(it.refused_after),
                )
            })
            .collect()
    }

    #[test]
    fn remedies_have_the_effect_of_the_law() {
        let offered = [
            claimant(400.0, 1.0),
            claimant(400.0, 1.0),
            claimant(400.0, 2.0),
        ];
        let expected = [
            ("weight 2 of acme", 50, 20),
            ("floor_rps 400 of acme", 50, 0),
            ("limit 1200 of orders", 50, 0),
        ];
        let expected = expected.map(|(change, from, to)| (change.to_owned(), from, to));
        assert_eq!(remedies(800.0, &offered), expected);
    }

    #[test]
    fn own_limit_is_the_first_remedy() {
        let mut stopped = claimant(400.0, 1.0);
        stopped.tenant_limit = 100.0;
        let found = remedies(1_000.0, &[stopped, claimant(10.0, 1.0), claimant(0.0, 1.0)]);
        assert_eq!(found, [("limit 400 of acme".to_owned(), 75, 0)]);
    }

    #[test]
    fn no_remedy_takes_everything_from_another() {
        let hot = claimant(400.0, 1.0);
        let found = remedies(300.0, &[hot, claimant(60.0, 3.0), claimant(40.0, 3.0)]);
        assert_eq!(found, [("limit 500 of orders".to_owned(), 50, 0)]);
    }

    #[test]
    fn nothing_to_remedy_without_refusals() {
        let fits = [claimant(1.0, 1.0), claimant(1.0, 1.0), claimant(0.0, 1.0)];
        assert_eq!(remedies(10.0, &fits), []);
    }
}
