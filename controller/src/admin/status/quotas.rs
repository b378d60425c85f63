//! The exact quotas of a bucket in `/status`.

use std::sync::Arc;

use plimsoll_core::names::Tenant;
use plimsoll_core::quota::{BucketQuotas, OnStoreError, Quota, QuotaKey};
use plimsoll_policy::every_text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

    /// Returns the quotas of a bucket whose numbers differ for a listed tenant or a class.
    pub(crate) fn differing(quotas: &BucketQuotas, entry: &Tenant) -> Vec<Self> {
        let differing = |quota: &Arc<Quota>| {
            let of_entry = quota.overrides().get(entry)?;
            (of_entry.rate != quota.rate).then(|| Self::of(of_entry))
        };
        quotas.iter().filter_map(differing).collect()
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
