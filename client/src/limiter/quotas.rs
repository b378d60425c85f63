//! The exact quotas of buckets, as directives define them: written off the request path, and read by each request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use plimsoll_core::quota::BucketQuotas;

pub(crate) struct QuotaDefinitions {
    buckets: Box<[Slot]>,
    any: AtomicBool,
}

#[derive(Debug, Default)]
struct Slot {
    /// True if there are any, so that requests to buckets without quotas take no lock.
    any: AtomicBool,
    /// True once a request was decided without waiting for the store, while there are any.
    in_memory: AtomicBool,
    quotas: RwLock<Option<BucketQuotas>>,
}

impl QuotaDefinitions {
    pub(crate) fn new(buckets: usize) -> Self {
        let buckets = (0..buckets).map(|_| Slot::default()).collect();
        Self {
            buckets,
            any: AtomicBool::new(false),
        }
    }

    /// Returns true if any bucket has quotas: one relaxed load.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Notes that a request was decided without waiting for the store; returns true for the first one.
    pub(crate) fn mark_decided_in_memory(&self, bucket: u32) -> bool {
        let slot = self.buckets.get(bucket as usize);
        slot.is_some_and(|slot| {
            !slot.in_memory.load(Ordering::Relaxed) && !slot.in_memory.swap(true, Ordering::Relaxed)
        })
    }

    /// Sets the quotas of a bucket; none if the list is empty. Quotas that did not change keep their
    /// identity, by which leases are found. Called by one thread at a time.
    pub(crate) fn set(&self, bucket: u32, quotas: Option<&BucketQuotas>) {
        let Some(slot) = self.buckets.get(bucket as usize) else {
            return;
        };
        let quotas = quotas.filter(|quotas| !quotas.is_empty());
        let mut held = slot.quotas.write().unwrap_or_else(PoisonError::into_inner);
        if held.as_ref() != quotas {
            *held = quotas.cloned();
        }
        if slot.any.swap(held.is_some(), Ordering::Relaxed) != held.is_some() {
            slot.in_memory.store(false, Ordering::Relaxed);
            let any = self
                .buckets
                .iter()
                .any(|slot| slot.any.load(Ordering::Relaxed));
            self.any.store(any, Ordering::Relaxed);
        }
    }

    /// Returns true if a bucket has quotas: one relaxed load.
    #[inline]
    pub(crate) fn has(&self, bucket: u32) -> bool {
        self.buckets
            .get(bucket as usize)
            .is_some_and(|slot| slot.any.load(Ordering::Relaxed))
    }

    /// Returns the quotas of a bucket, `None` if it has none. Takes a lock that each publication of this bucket holds
    /// for a moment.
    pub(crate) fn get(&self, bucket: u32) -> Option<BucketQuotas> {
        if !self.has(bucket) {
            return None;
        }
        let slot = self.buckets.get(bucket as usize)?;
        slot.quotas
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use std::sync::Arc;

    use plimsoll_core::names::Name;
    use plimsoll_core::quota::{OnStoreError, Quota, QuotaKey, QuotaRate};

    use super::*;

    fn quotas(names: &[&str]) -> BucketQuotas {
        let quota = |name: &&str| {
            let rate = QuotaRate::new(10, 10, 1_000).unwrap();
            let name = Name::new(name).unwrap();
            Arc::new(Quota::new(name, rate, QuotaKey::Tenant, OnStoreError::Deny, 1).unwrap())
        };
        BucketQuotas::new(names.iter().map(quota).collect()).unwrap()
    }

    #[test]
    fn bucket_keeps_its_quotas_until_withdrawn() {
        let definitions = QuotaDefinitions::new(2);
        assert_eq!((definitions.has(1), definitions.get(1)), (false, None));
        definitions.set(1, Some(&quotas(&["calls"])));
        assert_eq!(
            (definitions.has(1), definitions.get(1)),
            (true, Some(quotas(&["calls"])))
        );
        assert_eq!(definitions.get(0), None, "another bucket");
        definitions.set(2, Some(&quotas(&["calls"])));
        assert_eq!(definitions.get(2), None, "no such bucket");
        for none in [Some(&BucketQuotas::default()), None] {
            definitions.set(1, Some(&quotas(&["calls"])));
            definitions.set(1, none);
            assert_eq!((definitions.has(1), definitions.get(1)), (false, None));
        }
    }

    #[test]
    fn unchanged_quotas_keep_their_identity() {
        let definitions = QuotaDefinitions::new(1);
        definitions.set(0, Some(&quotas(&["calls"])));
        let first = definitions.get(0).unwrap();
        definitions.set(0, Some(&quotas(&["calls"])));
        assert!(Arc::ptr_eq(&first[0], &definitions.get(0).unwrap()[0]));
    }
}
