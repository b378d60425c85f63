//! What operators write: which buckets have which limit, who gets how much, and how far enforcement has gone.
//!
//! Pure: text in, [`Policy`] out. A policy that exists is valid throughout; what is wrong with a text is said by
//! [`PolicyError`], with the place, the field and what to do. The steps, each in a file of its own:
//!
//! 1. `outline`: is it YAML of the allowed kind, and where does each field stand?
//! 2. `spec`: does it have the right shape?
//! 3. `buckets`, `limits`, `gates`, `queries`, `tenants`: what do the values mean? Only here are numbers judged.
//! 4. `warning`: what is legal, but not built yet or not what it seems?

#![forbid(unsafe_code)]

mod buckets;
mod guardrails;
mod hash;
pub mod learning;
mod read;
mod spec;
mod tenants;
#[cfg(test)]
mod tests;
mod timestamp;
mod warning;
mod yaml;

pub use buckets::{
    BURST_DEFAULT, Bounds, BucketPolicy, Learned, LimitSource, Prometheus, QUERIES_MAX, QueryGate, Release,
    RolloutPolicy,
};
pub use guardrails::{Difference, LIMIT_FACTOR_MAX, TENANTS_REMOVED_MAX, differences};
pub use hash::PolicyHash;
pub use tenants::{
    Algorithm, Boost, BurstMultiplier, Fairness, InvalidBurstMultiplier, REWEIGHT_INTERVAL_DEFAULT,
    TenantPolicy,
};
pub use timestamp::{InvalidTimestamp, UnixSeconds};
pub use warning::Warning;
pub use yaml::{Document, FAULTS_MAX, FILE_BYTES_MAX, Fault, Field, Number, Place, PolicyError, Source};

use plimsoll_core::names::{Bucket, Tenant};

use buckets::Buckets;
use tenants::Tenants;

/// The text of a `tenants.yaml` that knows one class only: for where no such file is given.
pub const ONE_CLASS_TENANTS: &str = "tenants: { default: { weight: 1.0 } }\n";

/// The validated policy: limits, tenants and rollout.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    kill_switch: bool,
    guardrails: bool,
    buckets: Buckets,
    tenants: Tenants,
    fairness: Fairness,
    hash: PolicyHash,
}

impl Policy {
    /// Reads the two files of a policy, `policy.yaml` and `tenants.yaml`, as one. Takes time linear in their length
    /// but for the sorting of names.
    ///
    /// # Errors
    /// Everything that is wrong with either file, as far as one reading can tell: a file that is not well-formed or
    /// not of the right shape has one fault, and one whose values are wrong has one for each bucket and tenant.
    pub fn read(policy: Source<'_>, tenants: Source<'_>) -> Result<(Self, Vec<Warning>), PolicyError> {
        read::read(policy, tenants)
    }

    /// Whether every client only observes, as far as the file says.
    #[must_use]
    pub const fn kill_switch(&self) -> bool {
        self.kill_switch
    }

    /// Whether reloads that change very much are held back.
    #[must_use]
    pub const fn guardrails(&self) -> bool {
        self.guardrails
    }

    /// The policy of the bucket `name`: under its exact name, else under the longest pattern that matches. `None`
    /// means that nothing is known of it, so it is admitted and counted.
    #[must_use]
    pub fn bucket(&self, name: &Bucket) -> Option<&BucketPolicy> {
        self.buckets.get(name)
    }

    /// The entry of the policy that the bucket `name` falls under, as written: its own name, or a pattern.
    #[must_use]
    pub fn entry(&self, name: &Bucket) -> Option<String> {
        self.buckets.entry(name)
    }

    /// The buckets that are listed by their exact name, in the order of names.
    pub fn exact_buckets(&self) -> impl Iterator<Item = (&Bucket, &BucketPolicy)> {
        self.buckets.exact.iter()
    }

    /// The patterns of buckets as written, `*` included, in the order of their beginnings.
    pub fn patterns(&self) -> impl Iterator<Item = (String, &BucketPolicy)> {
        self.buckets.patterns.iter().map(|(pattern, policy)| (pattern.to_string(), policy))
    }

    /// The tenants that are listed, the class `default` among them, in the order of names.
    pub fn tenants(&self) -> impl Iterator<Item = (&Tenant, &TenantPolicy)> {
        self.tenants.listed.iter()
    }

    /// What the tenant `name` is entitled to: its own entry, else that of the class `default`.
    #[must_use]
    pub fn tenant(&self, name: &Tenant) -> &TenantPolicy {
        self.tenants.get(name)
    }

    /// Whether the tenant `name` has an entry of its own.
    #[must_use]
    pub fn is_listed(&self, name: &Tenant) -> bool {
        self.tenants.listed.contains_key(name)
    }

    /// How shares are worked out.
    #[must_use]
    pub const fn fairness(&self) -> &Fairness {
        &self.fairness
    }

    /// The name of this policy's content.
    #[must_use]
    pub const fn hash(&self) -> PolicyHash {
        self.hash
    }
}
