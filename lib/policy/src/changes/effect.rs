//! The effect of a policy on traffic: the requests that the law would refuse under it. Pure.

use std::collections::BTreeMap;

use plimsoll_core::decision::Mode;
use plimsoll_core::law::{Claimant, Division};
use plimsoll_core::names::{Bucket, Tenant};
use plimsoll_core::quantity::Limit;

use crate::{BucketPolicy, Policy};

/// The requests/s that each tenant offers to each bucket at one moment.
pub type Offered = BTreeMap<Bucket, BTreeMap<Tenant, f64>>;

/// A policy as it applies to the fleet.
#[derive(Clone, Copy)]
pub struct Regime<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// Returns the limit of a bucket, from the source that the policy names.
    pub limit: &'a dyn Fn(&Bucket) -> Limit,
    /// Returns the stage of an entry of the policy.
    pub stage: &'a dyn Fn(&str) -> Mode,
}

#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    pub(super) entry: &'a BucketPolicy,
    pub(super) limit: Limit,
    pub(super) stage: Mode,
}

/// The requests of a bucket or tenant: offered, refused under the current policy, and refused under
/// the other one. All in requests/s, added up over the moments of a record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Effect {
    pub(super) offered: f64,
    pub(super) before: f64,
    pub(super) after: f64,
}

#[derive(Debug, Default)]
pub(super) struct BucketEffect {
    pub(super) all: Effect,
    pub(super) tenants: BTreeMap<Tenant, Effect>,
}

// === impl Regime ===

impl<'a> Regime<'a> {
    pub(super) fn of_bucket(&self, name: &Bucket) -> Option<Terms<'a>> {
        let entry = self.policy.bucket(name)?;
        let stage = (self.stage)(&self.policy.entry(name)?);
        Some(Terms {
            entry,
            limit: (self.limit)(name),
            stage,
        })
    }

    pub(super) fn of_patterns(&self) -> BTreeMap<String, Terms<'a>> {
        let terms = |pattern: &str, entry: &'a BucketPolicy| Terms {
            entry,
            limit: entry.limit(),
            stage: (self.stage)(pattern),
        };
        self.policy
            .patterns()
            .map(|(pattern, entry)| (pattern.clone(), terms(&pattern, entry)))
            .collect()
    }

    /// Returns the requests/s of each tenant that are refused on these terms, in the order of `offered`: by the
    /// division of the law, as far as the stage carries refusals out.
    fn refused(
        &self,
        bucket: &Bucket,
        terms: Option<Terms<'_>>,
        offered: &BTreeMap<Tenant, f64>,
        unix_s: i64,
    ) -> Vec<f64> {
        let limited = terms.and_then(|terms| Some((terms, terms.limit.per_second()?.per_second())));
        let Some((terms, limit)) = limited else {
            return vec![0.0; offered.len()];
        };
        let class = Tenant::default_class();
        let weight = |tenant| self.policy.tenant(tenant).weight_at(unix_s).get();
        let claimants = offered.iter().map(|(tenant, offered)| {
            // A class stands for many tenants, so the limit of one tenant does not apply.
            let tenant_limit = (!tenant.is_class())
                .then(|| self.policy.tenant_limit(tenant, bucket))
                .flatten();
            let claimant = Claimant {
                offered: *offered,
                weight: weight(tenant),
                floor: self.policy.floor(tenant).per_second(),
                tenant_limit: tenant_limit.map_or(f64::INFINITY, |(rate, _)| rate.per_second()),
            };
            (*tenant != class && self.policy.is_listed(tenant), claimant)
        });
        let claimants: Vec<(bool, Claimant)> = claimants.collect();
        let of_class = claimants
            .iter()
            .filter(|(is_listed, _)| !is_listed)
            .map(|(_, claimant)| *claimant);
        let names: Vec<Claimant> = of_class
            .map(|claimant| Claimant {
                weight: 1.0,
                floor: 0.0,
                ..claimant
            })
            .collect();
        // All names that the policy does not list, and that have no plan, are one key of the law.
        let asked = names.iter().map(Claimant::demand).sum();
        let class = Claimant {
            offered: asked,
            weight: weight(&class),
            floor: self.policy.floor(&class).per_second(),
            tenant_limit: f64::INFINITY,
        };
        let listed = claimants
            .iter()
            .filter(|(is_listed, _)| *is_listed)
            .map(|(_, claimant)| *claimant);
        let all: Vec<Claimant> = listed.chain([class]).collect();
        let (mut division, mut of_names) = (Division::default(), Division::default());
        division.divide(limit, limit, &all);
        let left = division.allocations.last().copied().unwrap_or_default();
        of_names.divide(left, left, &names);
        let (mut listed, mut names) = (division.allocations.iter(), of_names.allocations.iter());
        let allocations = claimants.iter().map(|(is_listed, _)| {
            let next = if *is_listed {
                listed.next()
            } else {
                names.next()
            };
            next.copied().unwrap_or_default()
        });
        let carried_out = match terms.stage {
            Mode::Shadow => 0.0,
            Mode::Canary => terms.entry.rollout.canary_percent.get() / 100.0,
            Mode::Enforce => 1.0,
        };
        let refused =
            |(offered, allocation): (&f64, f64)| (offered - allocation).max(0.0) * carried_out;
        offered.values().zip(allocations).map(refused).collect()
    }
}

// === impl Effect ===

impl Effect {
    fn add(&mut self, other: Self) {
        self.offered += other.offered;
        self.before += other.before;
        self.after += other.after;
    }

    /// Returns the shares of the requests refused, before and after.
    pub(super) fn shares(&self) -> [f64; 2] {
        [self.before, self.after].map(|refused| refused / self.offered)
    }

    /// Returns the share of the requests admitted now that would be refused, negative if more would be admitted.
    pub(super) fn lost(&self) -> f64 {
        let admitted = self.offered - self.before;
        if admitted > 0.0 {
            (self.after - self.before) / admitted
        } else {
            0.0
        }
    }
}

/// Returns the effect of a change on each bucket with traffic, added up over the moments of `traffic`.
pub(super) fn effects<'t>(
    before: &Regime<'_>,
    after: &Regime<'_>,
    traffic: impl IntoIterator<Item = &'t Offered>,
    unix_s: i64,
) -> BTreeMap<&'t Bucket, BucketEffect> {
    let mut effects: BTreeMap<&Bucket, BucketEffect> = BTreeMap::new();
    let mut terms = BTreeMap::new();
    for (bucket, offered) in traffic.into_iter().flatten() {
        let effect = effects.entry(bucket).or_default();
        let (one, other) = *terms
            .entry(bucket)
            .or_insert_with(|| (before.of_bucket(bucket), after.of_bucket(bucket)));
        let refused = before.refused(bucket, one, offered, unix_s).into_iter();
        let refused = refused.zip(after.refused(bucket, other, offered, unix_s));
        for ((tenant, offered), (before, after)) in offered.iter().zip(refused) {
            let one = Effect {
                offered: *offered,
                before,
                after,
            };
            effect.all.add(one);
            effect.tenants.entry(tenant.clone()).or_default().add(one);
        }
    }
    effects.retain(|_, effect| effect.all.offered > 0.0);
    effects
}
