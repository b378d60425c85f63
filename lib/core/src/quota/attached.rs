//! The quotas of one bucket together, as directives carry them.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::definition::{QUOTAS_PER_BUCKET_MAX, Quota};
use super::overrides::OVERRIDES_BYTES_MAX;

/// The quotas of one bucket, in the order of the policy. A request has to pass all of them. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct BucketQuotas(Arc<[Arc<Quota>]>);

/// The reason why quotas cannot belong to one bucket together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBucketQuotas {
    /// There are too many.
    #[error("a bucket has at most {QUOTAS_PER_BUCKET_MAX} quotas, this one has {0}")]
    TooMany(usize),
    /// Two have the same name.
    #[error("a bucket names each quota once")]
    Repeated,
    /// Some count per tenant and others over all tenants.
    #[error(
        "the quotas of one bucket have the same `key`: they are decided in one atomic call, for which a Redis Cluster needs \
         all of their keys in one slot"
    )]
    MixedKeys,
    /// The tenants and classes with rates of their own take too many bytes.
    #[error(
        "the numbers of tenants and plans take {0} bytes in one bucket, at most {OVERRIDES_BYTES_MAX}: each takes 26 and its \
         name"
    )]
    Overrides(usize),
}

impl BucketQuotas {
    /// Makes the quotas of one bucket.
    ///
    /// # Errors
    /// When they are too many, two have the same name, their keys differ in kind, or their overrides are too large.
    pub fn new(quotas: Vec<Arc<Quota>>) -> Result<Self, InvalidBucketQuotas> {
        if quotas.len() > QUOTAS_PER_BUCKET_MAX {
            return Err(InvalidBucketQuotas::TooMany(quotas.len()));
        }
        for (at, quota) in quotas.iter().enumerate() {
            let before = &quotas[..at];
            if before.iter().any(|other| other.name == quota.name) {
                return Err(InvalidBucketQuotas::Repeated);
            }
            if before.iter().any(|other| other.key != quota.key) {
                return Err(InvalidBucketQuotas::MixedKeys);
            }
        }
        let overrides = quotas.iter().map(|quota| quota.overrides_bytes()).sum();
        if overrides > OVERRIDES_BYTES_MAX {
            return Err(InvalidBucketQuotas::Overrides(overrides));
        }
        Ok(Self(quotas.into()))
    }

    /// Returns these quotas with the rates of a tenant, by its own name and the plan of the request, which may be empty.
    pub fn of_tenant(self, tenant: &str, plan: &str) -> Self {
        if self.iter().all(|quota| quota.overrides().is_empty()) {
            return self;
        }
        let quotas = self.iter().map(|quota| quota.of_tenant(tenant, plan));
        Self(quotas.cloned().collect())
    }
}

impl Deref for BucketQuotas {
    type Target = [Arc<Quota>];

    fn deref(&self) -> &[Arc<Quota>] {
        &self.0
    }
}

impl fmt::Debug for BucketQuotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{OnStoreError, QuotaKey, QuotaRate};
    use super::*;
    use crate::names::Name;

    fn quota(name: &str, key: QuotaKey) -> Arc<Quota> {
        let rate = QuotaRate::new(10, 10, 1_000).unwrap();
        let name = Name::new(name).unwrap();
        Arc::new(Quota::new(name, rate, key, OnStoreError::AllowBounded, 1).unwrap())
    }

    #[test]
    fn bucket_quotas_are_few_and_distinct() {
        let (tenant, global) = (QuotaKey::Tenant, QuotaKey::Global);
        let numbered = |count: usize| {
            (0..count)
                .map(|n| quota(&format!("q{n}"), tenant))
                .collect::<Vec<_>>()
        };
        for (quotas, expected) in [
            (Vec::new(), Ok(0)),
            (numbered(QUOTAS_PER_BUCKET_MAX), Ok(QUOTAS_PER_BUCKET_MAX)),
            (
                numbered(QUOTAS_PER_BUCKET_MAX + 1),
                Err(InvalidBucketQuotas::TooMany(QUOTAS_PER_BUCKET_MAX + 1)),
            ),
            (vec![quota("a", global), quota("b", global)], Ok(2)),
            (
                vec![quota("a", tenant), quota("a", tenant)],
                Err(InvalidBucketQuotas::Repeated),
            ),
            (
                vec![quota("a", tenant), quota("b", global)],
                Err(InvalidBucketQuotas::MixedKeys),
            ),
        ] {
            let made = BucketQuotas::new(quotas.clone());
            assert_eq!(made.map(|made| made.len()), expected, "{quotas:?}");
        }
    }
}
