//! The exact quotas of a bucket in `/status`, and what the policy grants single tenants and plans there.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::names::{Bucket, Tenant};
use plimsoll_core::quantity::Rate;
use plimsoll_core::quota::{BucketQuotas, OnStoreError, Quota, QuotaKey};
use plimsoll_policy::{Policy, every_text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The grants of one tenant, or of each tenant of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TenantGrants {
    /// The plan.
    pub plan: Option<String>,
    /// The weight without a boost; that of a plan is of all its unlisted tenants together.
    pub weight: f64,
    /// Requests/s below which it is not refused, while all floors can be met.
    pub floor_rps: f64,
    /// Requests/s that it does not exceed; null without a limit of its own, of its plan or of the bucket.
    pub limit_rps: Option<f64>,
    /// The entry that sets this limit: `tenant`, `plan` or `bucket`.
    pub limit_of: Option<String>,
    /// The exact quotas whose numbers are not those of their definition.
    #[serde(default)]
    pub quotas: Vec<QuotaStatus>,
}

impl TenantGrants {
    /// Returns the grants of the tenants with a plan, or with a limit or a quota that is not the bucket's.
    pub(crate) fn list(policy: &Policy, bucket: &Bucket) -> BTreeMap<Tenant, Self> {
        let each = policy.tenants().filter_map(|(name, tenant)| {
            let quotas = differing(policy, bucket, name);
            let is_own = tenant.limit_in(bucket).is_some() || tenant.plan.is_some();
            let has_grants = is_own || !quotas.is_empty();
            has_grants.then(|| (name.clone(), Self::of(policy, bucket, name, quotas)))
        });
        each.collect()
    }

    /// Returns the grants of a listed tenant or a class.
    pub(crate) fn in_bucket(policy: &Policy, bucket: &Bucket, name: &Tenant) -> Self {
        Self::of(policy, bucket, name, differing(policy, bucket, name))
    }

    fn of(policy: &Policy, bucket: &Bucket, name: &Tenant, quotas: Vec<QuotaStatus>) -> Self {
        let tenant = policy.tenant(name);
        let limit = policy.tenant_limit(name, bucket);
        Self {
            plan: tenant.plan.as_ref().map(|plan| plan.name.clone()),
            weight: tenant.weight.get(),
            floor_rps: policy.floor(name).per_second(),
            limit_rps: limit.map(|(rate, _)| Rate::per_second(rate)),
            limit_of: limit.map(|(_, owner)| owner.as_str().to_owned()),
            quotas,
        }
    }
}

/// Returns the quotas of a bucket whose numbers are not those of their definition for a listed tenant or a class.
fn differing(policy: &Policy, bucket: &Bucket, entry: &Tenant) -> Vec<QuotaStatus> {
    let plan = policy.tenant(entry).plan.as_ref();
    let plan = plan.map_or("", |plan| plan.name.as_str());
    let differing = |quota: &Arc<Quota>| {
        // As clients do: a row of the catalogue has the numbers of its plan.
        let of_entry = quota.of_tenant(entry.as_str(), plan);
        (of_entry.rate != quota.rate).then(|| QuotaStatus::of(of_entry))
    };
    let attached = policy.bucket(bucket).map(|of| of.quotas.iter());
    attached
        .into_iter()
        .flatten()
        .filter_map(differing)
        .collect()
}

/// One exact quota, as the policy defines it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuotaStatus {
    /// The name in the policy.
    pub name: String,
    /// The tokens of a full bucket.
    pub max: u64,
    /// The tokens of one refill.
    pub refill: u64,
    /// The time between two refills, such as `1h`.
    pub every: String,
    /// The requests that share one bucket.
    pub key: QuotaKey,
    /// The decision of a client while the store does not answer.
    pub on_store_error: OnStoreError,
    /// Maximum number of tokens that an instance takes in one lease.
    pub lease: u64,
}

impl QuotaStatus {
    pub(crate) fn list(quotas: &BucketQuotas) -> Vec<Self> {
        quotas.iter().map(|quota| Self::of(quota)).collect()
    }

    fn of(quota: &Quota) -> Self {
        Self {
            name: quota.name.to_string(),
            max: quota.rate.max(),
            refill: quota.rate.refill(),
            every: every_text(quota.rate),
            key: quota.key,
            on_store_error: quota.on_store_error,
            lease: quota.lease(),
        }
    }
}
