//! The limits of buckets and tenants, for refusals that name them: written with each directive, off the request path.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use plimsoll_core::directive::{Entitlement, LimitOwner};
use plimsoll_core::quantity::{Limit, Rate};

use crate::hot::sync::{AtomicU64, Ordering, zeroed};

/// The limit of a tenant in a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TenantLimit {
    /// In requests/s, over all zones.
    pub per_second: f64,
    /// The entry of the policy that sets it.
    pub owner: LimitOwner,
}

/// The limit of each bucket, by id, in one word: 0 while it is unknown, all ones if there is none, and else the bits
/// of its requests/s, plus one. The limits of tenants and classes are by key, and read only for refusals by them.
pub(crate) struct Limits {
    buckets: Vec<AtomicU64>,
    tenants: RwLock<HashMap<u32, TenantLimit>>,
}

impl Limits {
    const UNLIMITED: u64 = u64::MAX;

    pub(crate) fn new(buckets: usize) -> Self {
        Self {
            buckets: zeroed(buckets),
            tenants: RwLock::default(),
        }
    }

    pub(crate) fn set(&self, bucket: u32, limit: Limit) {
        let word = match limit {
            Limit::Unknown => 0,
            Limit::Unlimited => Self::UNLIMITED,
            Limit::PerSecond(rate) => rate.per_second().to_bits().saturating_add(1),
        };
        if let Some(shared) = self.buckets.get(bucket as usize) {
            shared.store(word, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self, bucket: u32) -> Limit {
        match self
            .buckets
            .get(bucket as usize)
            .map_or(0, |shared| shared.load(Ordering::Relaxed))
        {
            0 => Limit::Unknown,
            Self::UNLIMITED => Limit::Unlimited,
            word => Rate::new(f64::from_bits(word - 1)).map_or(Limit::Unknown, Limit::PerSecond),
        }
    }

    /// Sets the limit of a tenant's own key, or of each name of a class; without an entitlement there is none.
    pub(crate) fn set_tenant(&self, key: u32, entitlement: Option<Entitlement>) {
        let limit = entitlement.and_then(|of| {
            Some(TenantLimit {
                per_second: of.tenant_limit?.per_second(),
                owner: of.limit_owner,
            })
        });
        if self.tenant(key) == limit {
            return;
        }
        let mut tenants = self.tenants.write().unwrap_or_else(PoisonError::into_inner);
        match limit {
            Some(limit) => drop(tenants.insert(key, limit)),
            None => drop(tenants.remove(&key)),
        }
    }

    pub(crate) fn tenant(&self, key: u32) -> Option<TenantLimit> {
        let tenants = self.tenants.read().unwrap_or_else(PoisonError::into_inner);
        tenants.get(&key).copied()
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    #[test]
    fn unknown_limit_is_not_zero() {
        let limits = Limits::new(2);
        assert_eq!(limits.get(1), Limit::Unknown);
        let rates = [0.0, 1e-9, 0.5, 1_000.0, 1e12];
        let rates = rates.map(|rate| Limit::PerSecond(Rate::new(rate).unwrap()));
        for limit in [Limit::Unlimited, Limit::Unknown].into_iter().chain(rates) {
            limits.set(1, limit);
            assert_eq!((limits.get(1), limits.get(0)), (limit, Limit::Unknown));
        }
        limits.set(2, Limit::Unlimited);
        assert_eq!(limits.get(2), Limit::Unknown, "no such bucket");
    }
}
