//! What the policy grants single tenants and plans in a bucket, in `/status`.

use std::collections::BTreeMap;

use plimsoll_core::names::{Bucket, Tenant};
use plimsoll_core::quantity::Rate;
use plimsoll_policy::Policy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::status::QuotaStatus;

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
        let attached = policy.bucket(bucket).map(|of| &of.quotas);
        let each = policy.tenants().filter_map(|(name, tenant)| {
            let quotas = attached.map_or_else(Vec::new, |of| QuotaStatus::differing(of, name));
            let is_own = tenant.limit_in(bucket).is_some() || tenant.plan.is_some();
            let has_grants = is_own || !quotas.is_empty();
            has_grants.then(|| (name.clone(), Self::of(policy, bucket, name, quotas)))
        });
        each.collect()
    }

    /// Returns the grants of a tenant that a policy lists because of its row in the catalogue: its quotas are those of its
    /// plan.
    pub(super) fn of_row(policy: &Policy, bucket: &Bucket, name: &Tenant) -> Self {
        let class = policy.tenant(name).class();
        Self::of(policy, bucket, name, differing(policy, bucket, &class))
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

fn differing(policy: &Policy, bucket: &Bucket, entry: &Tenant) -> Vec<QuotaStatus> {
    let attached = policy.bucket(bucket).map(|of| &of.quotas);
    attached.map_or_else(Vec::new, |of| QuotaStatus::differing(of, entry))
}
