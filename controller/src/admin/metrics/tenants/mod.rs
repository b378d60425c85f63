//! The tenants nearest to their limits: a series for each tenant would have no bound.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};

use plimsoll_core::names::{Key, Tenant, own_name, plan_of};
use plimsoll_core::stats::metrics::rows;

use super::M;
use crate::brain::Brain;

/// Maximum number of tenants with series of their own, over all buckets.
const SHOWN_MAX: usize = 50;
/// The nearness of a tenant that has series counts this many times: the rates of small tenants vary by chance, and each
/// exchange of two would begin a series.
const STAYS: f64 = 1.5;

/// The labels of the tenants that have series.
pub(crate) type Shown = HashSet<[String; 3]>;

/// A tenant with a limit, and its requests/s over all zones.
#[derive(Clone, Copy, Debug)]
struct LimitedTenant<'a> {
    /// Bucket, own name, and plan, which is empty without one.
    labels: [&'a str; 3],
    offered: f64,
    limit: f64,
}

#[derive(Debug, Default)]
pub(super) struct NearestTenants<'a> {
    /// From the nearest on.
    shown: Vec<LimitedTenant<'a>>,
    /// The number of all others by bucket, and their requests/s.
    others: BTreeMap<&'a str, (usize, f64)>,
}

pub(super) fn of_tenants<'a>() -> Vec<M<'a>> {
    vec![
        M::gauge(
            "plimsoll_tenant_offered_rps",
            &["bucket", "tenant", "plan"],
            "Requests/s that the tenant offers, over all zones, for the 50 tenants of the fleet that are nearest to their \
             limits; one that is shown stays until another is half as near again. The tenant's name is without its plan.",
            |s| rows(s.tenants.shown.iter().map(|of| (of.labels, of.offered))),
        ),
        M::gauge(
            "plimsoll_tenant_limit_rps",
            &["bucket", "tenant", "plan"],
            "Limit of the same tenants in requests/s: their own, that of their plan, or the `tenant_limit` of the bucket.",
            |s| rows(s.tenants.shown.iter().map(|of| (of.labels, of.limit))),
        ),
        M::gauge(
            "plimsoll_tenants_other",
            &["bucket"],
            "Tenants with a limit beyond the 50: those that the policy lists, and others that use a tenth of it or more; \
             absent if there are none.",
            |s| rows(s.tenants.others.iter().map(|(name, of)| ([*name], of.0))),
        ),
        M::gauge(
            "plimsoll_tenants_other_offered_rps",
            &["bucket"],
            "Requests/s that these other tenants offer together.",
            |s| rows(s.tenants.others.iter().map(|(name, of)| ([*name], of.1))),
        ),
    ]
}

impl<'a> NearestTenants<'a> {
    /// Selects the tenants to show, and notes them in `shown`. Linear in the listed tenants of all buckets.
    pub(super) fn update(brain: &'a Brain, shown: &mut Shown) -> Self {
        let before = shown.iter().map(|of| of.each_ref().map(String::as_str));
        let nearest = Self::select(limited_tenants(brain), &before.collect());
        let labels = nearest.shown.iter().map(|of| of.labels);
        *shown = labels.map(|of| of.map(str::to_owned)).collect();
        nearest
    }

    fn select(
        tenants: impl Iterator<Item = LimitedTenant<'a>>,
        before: &HashSet<[&str; 3]>,
    ) -> Self {
        let nearness = |of: &LimitedTenant<'_>| {
            let stays = if before.contains(&of.labels) {
                STAYS
            } else {
                1.0
            };
            // Nothing of a limit of nothing is not near.
            (stays * of.offered / of.limit).max(0.0)
        };
        let mut ranked: Vec<_> = tenants.map(|of| (nearness(&of), of)).collect();
        if ranked.len() > SHOWN_MAX {
            ranked.select_nth_unstable_by(SHOWN_MAX, nearer);
        }
        let mut nearest = Self::default();
        for (_, of) in ranked.drain(SHOWN_MAX.min(ranked.len())..) {
            let others = nearest.others.entry(of.labels[0]).or_default();
            *others = (others.0 + 1, others.1 + of.offered);
        }
        ranked.sort_unstable_by(nearer);
        nearest.shown = ranked.into_iter().map(|(_, of)| of).collect();
        nearest
    }
}

/// The nearest first, and by name if two are as near.
fn nearer(one: &(f64, LimitedTenant<'_>), other: &(f64, LimitedTenant<'_>)) -> Ordering {
    let by_name = || one.1.labels.cmp(&other.1.labels);
    other.0.total_cmp(&one.0).then_with(by_name)
}

/// The listed tenants that have a limit, and the other names that aggregators report as near theirs.
fn limited_tenants(brain: &Brain) -> impl Iterator<Item = LimitedTenant<'_>> {
    let policy = brain.policy();
    let mut rates: HashMap<&Key, f64> = HashMap::new();
    for (key, rate) in brain.downstream.aggregators.limited() {
        *rates.entry(key).or_default() += rate;
    }
    let unlisted = rates.into_iter().filter_map(|(key, offered)| {
        let name = key.tenant.as_str();
        let tenant = own_name(name);
        let plan = plan_of(name).unwrap_or_default();
        // A name that the policy has just listed is reported once more.
        let is_listed = Tenant::new(tenant).is_ok_and(|tenant| policy.is_listed(&tenant));
        let limit = policy.tenant_limit(&key.tenant, &key.bucket);
        Some(LimitedTenant {
            labels: [key.bucket.as_str(), tenant, plan],
            offered,
            limit: limit.filter(|_| !is_listed)?.0.per_second(),
        })
    });
    let buckets = brain.buckets.states.values();
    let listed = buckets.flat_map(move |bucket| {
        let tenants = bucket.tenants_with_limits();
        tenants.map(move |(tenant, limit, share)| {
            let plan = policy.tenant(tenant).plan.as_ref();
            let plan = plan.map_or("", |plan| &plan.name);
            LimitedTenant {
                labels: [bucket.name.as_str(), tenant.as_str(), plan],
                offered: share.offered,
                limit: limit.per_second(),
            }
        })
    });
    unlisted.chain(listed)
}
