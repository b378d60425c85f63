//! What the policy grants single tenants and plans in a bucket, in `/status`.

use std::collections::BTreeMap;

use plimsoll_core::names::{Bucket, Tenant};
use plimsoll_core::quantity::Rate;
use plimsoll_policy::Policy;
use serde::{Deserialize, Serialize};

/// The grants of one tenant, or of each tenant of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
}

impl TenantGrants {
    /// Returns the grants of the tenants with a plan, or with a limit that is not the bucket's.
    pub(crate) fn list(policy: &Policy, bucket: &Bucket) -> BTreeMap<Tenant, Self> {
        let each = policy.tenants().filter_map(|(name, tenant)| {
            let is_own = tenant.limit_in(bucket).is_some() || tenant.plan.is_some();
            is_own.then(|| (name.clone(), Self::of(policy, bucket, name)))
        });
        each.collect()
    }

    pub(super) fn of(policy: &Policy, bucket: &Bucket, name: &Tenant) -> Self {
        let tenant = policy.tenant(name);
        let limit = policy.tenant_limit(name, bucket);
        Self {
            plan: tenant.plan.as_ref().map(|plan| plan.name.clone()),
            weight: tenant.weight.get(),
            floor_rps: policy.floor(name).per_second(),
            limit_rps: limit.map(|(rate, _)| Rate::per_second(rate)),
            limit_of: limit.map(|(_, owner)| owner.as_str().to_owned()),
        }
    }
}
