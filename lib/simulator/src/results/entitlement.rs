//! The entitlement of each tenant at its offered rate: weighted max-min shares, found by bisection.
//! It does not use the law's own water-filling, so that each checks the other.

use plimsoll_core::names::{Bucket, DEFAULT_TENANT, Tenant, own_name, split_class};
use plimsoll_policy::Policy;

/// A tenant with its own share, or all unlisted tenants together.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Claim {
    demand: f64,
    weight: f64,
    floor: f64,
}

/// Claims on a bucket in requests/s: listed tenants and plans, and last the class of all others.
struct Claims {
    own: Vec<Claim>,
    others: Vec<Claim>,
    /// By tenant, its index in `own` or in `others`.
    places: Vec<Result<usize, usize>>,
}

/// Returns true if a tenant, or the tenants of a plan together, have their own claim.
pub(crate) fn is_own(policy: &Policy, tenant: &Tenant) -> bool {
    let is_listed = |name: &str| Tenant::new(name).is_ok_and(|name| policy.is_listed(&name));
    let name = own_name(tenant.as_str());
    let of_plan = tenant.plan().is_some() && is_listed(split_class(tenant.as_str()).1);
    of_plan || is_listed(name) && name != DEFAULT_TENANT
}

/// Returns the share of each tenant in requests/s at these offered rates. All tenants that the
/// policy does not list claim as one, with the weight of the class `default` and one floor, and
/// divide their share evenly.
pub(crate) fn shares(
    policy: &Policy,
    bucket: &Bucket,
    limit: f64,
    tenants: &[Tenant],
    offered: &[f64],
) -> Vec<f64> {
    let Claims {
        own,
        others,
        places,
    } = Claims::of(policy, bucket, tenants, offered);
    let own = divide(&own, limit);
    let within = divide(&others, own.last().copied().unwrap_or(0.0));
    places
        .into_iter()
        .map(|place| place.map_or_else(|at| within[at], |at| own[at]))
        .collect()
}

/// Returns the share of all unlisted tenants together in requests/s.
pub(crate) fn of_class(
    policy: &Policy,
    bucket: &Bucket,
    limit: f64,
    tenants: &[Tenant],
    offered: &[f64],
) -> f64 {
    divide(&Claims::of(policy, bucket, tenants, offered).own, limit)
        .last()
        .copied()
        .unwrap_or(0.0)
}

impl Claims {
    fn of(policy: &Policy, bucket: &Bucket, tenants: &[Tenant], offered: &[f64]) -> Self {
        let floor = policy.fairness().min_floor.per_second();
        let weight = |tenant: &Tenant| policy.tenant(tenant).weight.get();
        let (mut own, mut others, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for (tenant, offered) in tenants.iter().zip(offered) {
            // The limit of a plan is of each of its names.
            let cap = policy
                .tenant_limit(tenant, bucket)
                .filter(|_| tenant.plan().is_none())
                .map_or(f64::INFINITY, |(rate, _)| rate.per_second());
            let demand = offered.min(cap);
            if is_own(policy, tenant) {
                places.push(Ok(own.len()));
                own.push(Claim {
                    demand,
                    weight: weight(tenant),
                    floor,
                });
            } else {
                places.push(Err(others.len()));
                others.push(Claim {
                    demand,
                    weight: 1.0,
                    floor: 0.0,
                });
            }
        }
        let demand = others.iter().map(|claim| claim.demand).sum();
        own.push(Claim {
            demand,
            weight: weight(&Tenant::default_class()),
            floor,
        });
        Self {
            own,
            others,
            places,
        }
    }
}

/// Divides a capacity by weighted max-min with floors: each claim gets `clip(weight * level,
/// min(demand, floor), demand)` with the level that makes the sum the capacity. If the floors
/// together exceed it, they become the demands.
fn divide(claims: &[Claim], capacity: f64) -> Vec<f64> {
    let floors: f64 = claims
        .iter()
        .map(|claim| claim.demand.min(claim.floor))
        .sum();
    let claims: Vec<Claim> = if floors >= capacity {
        let bare = |claim: &Claim| Claim {
            demand: claim.demand.min(claim.floor),
            floor: 0.0,
            ..*claim
        };
        claims.iter().map(bare).collect()
    } else {
        claims.to_vec()
    };
    let at = |level: f64| -> Vec<f64> {
        let clip = |claim: &Claim| {
            (claim.weight * level).clamp(claim.demand.min(claim.floor), claim.demand)
        };
        claims.iter().map(clip).collect()
    };
    let enough = claims
        .iter()
        .map(|claim| claim.demand / claim.weight)
        .fold(0.0, f64::max);
    if at(enough).iter().sum::<f64>() <= capacity {
        return at(enough);
    }
    let (mut low, mut high) = (0.0, enough);
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if at(middle).iter().sum::<f64>() > capacity {
            high = middle
        } else {
            low = middle
        }
    }
    at(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the division of 1,000 between these demands with weights 4, 1 and 0.25 and a floor.
    fn check(demands: [f64; 3], floor: f64, expected: [f64; 3]) {
        let claims: Vec<Claim> = demands
            .into_iter()
            .zip([4.0, 1.0, 0.25])
            .map(|(demand, weight)| Claim {
                demand,
                weight,
                floor,
            })
            .collect();
        let shares = divide(&claims, 1_000.0);
        for (share, expected) in shares.iter().zip(expected) {
            assert!((share - expected).abs() < 0.5, "{demands:?}: {shares:?}");
        }
    }

    #[test]
    fn shares_of_the_documented_examples_are_found() {
        check([300.0, 300.0, 3_000.0], 5.0, [300.0, 300.0, 400.0]);
        check([3_000.0, 300.0, 300.0], 5.0, [761.9, 190.5, 47.6]);
        check([2_000.0, 2_000.0, 2_000.0], 5.0, [761.9, 190.5, 47.6]);
        check([2_000.0, 2_000.0, 2_000.0], 400.0, [400.0, 400.0, 200.0]);
        check([2_000.0, 2_000.0, 1.0], 5.0, [799.2, 199.8, 1.0]);
        check([100.0, 100.0, 100.0], 5.0, [100.0, 100.0, 100.0]);
        check([0.0, 0.0, 0.0], 5.0, [0.0, 0.0, 0.0]);
    }
}
