//! The definition of a quota, as the policy gives it and directives carry it to clients.

use serde::{Deserialize, Serialize};

use super::overrides::Overrides;
use super::rate::{QuotaRate, TOKENS_MAX};
use crate::names::Name;

/// The quotas of one bucket, at most.
pub const QUOTAS_PER_BUCKET_MAX: usize = 8;
/// The tokens of one lease, at most.
pub const LEASE_MAX: u64 = 1_000_000;

/// A quota: an exact number of requests in a time, for each key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The name, which buckets attach it by. Buckets that attach the same quota share its tokens.
    pub name: Name,
    /// The size and the refill.
    pub rate: QuotaRate,
    /// The requests that share one token bucket.
    pub key: QuotaKey,
    /// Behaviour of a client while the store does not answer.
    pub on_store_error: OnStoreError,
    /// Maximum number of tokens that an instance takes in one lease for one key; 1 asks the store
    /// for each request.
    pub(super) lease: u64,
    /// The quotas of tenants and classes with other rates.
    pub(super) overrides: Overrides,
}

/// The requests that share one token bucket of a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum QuotaKey {
    /// Requests of one tenant.
    #[default]
    Tenant,
    /// Requests of all tenants.
    Global,
}

/// Behaviour of a client while the store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnStoreError {
    /// Admits a bounded number of requests per key, then refuses.
    #[default]
    AllowBounded,
    /// Admits every request.
    Allow,
    /// Refuses every request.
    Deny,
}

/// The reason why a quota is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidQuota {
    /// The lease is 0 or too large.
    #[error("`lease` must be between 1 and {LEASE_MAX}, and at most `max`")]
    Lease,
    /// A tenant has a rate of its own, although all share one token bucket.
    #[error("a quota with `key: global` counts all tenants together: none has a number of its own")]
    GlobalOverride,
}

impl Quota {
    /// Makes a quota.
    ///
    /// # Errors
    /// When the lease is 0, above [`LEASE_MAX`] or above the tokens of a full bucket.
    pub fn new(
        name: Name,
        rate: QuotaRate,
        key: QuotaKey,
        on_store_error: OnStoreError,
        lease: u64,
    ) -> Result<Self, InvalidQuota> {
        if lease == 0 || lease > LEASE_MAX || lease > rate.max() {
            return Err(InvalidQuota::Lease);
        }
        Ok(Self {
            name,
            rate,
            key,
            on_store_error,
            lease,
            overrides: Overrides::default(),
        })
    }

    /// Maximum number of tokens that an instance takes in one lease for one key.
    pub const fn lease(&self) -> u64 {
        self.lease
    }

    /// The smallest bound on the requests of one key that an instance admits in one refill interval while the store
    /// does not answer, under [`OnStoreError::AllowBounded`]: a lease, or where that is 1, a hundredth of the quota and
    /// at least 1.
    pub const fn bounded(&self) -> u64 {
        if self.lease > 1 {
            return self.lease;
        }
        let hundredth = self.rate.max() / 100;
        if hundredth == 0 { 1 } else { hundredth }
    }
}

const _: () = assert!(LEASE_MAX <= TOKENS_MAX);
