//! The choice of the tenants that have their own key where there is no room for all: the tenants
//! with the most traffic.

use std::hash::{DefaultHasher, Hash, Hasher};

use plimsoll_core::names::{Key, KeyId};
use plimsoll_core::stats::FrequencySketch;

/// Slots of the sketch of tenants without a key: 1 MiB.
const SKETCH_SLOTS: usize = 1 << 18;
/// Bits of a count in the sketch: one report may bring many requests.
const COUNT_BITS: u32 = 20;
/// Minimum requests in the last second or two of a tenant that is admitted where room is scarce.
const ADMITTED_FROM: u32 = 8;
/// Room is scarce from this share of a bucket's keys on.
const SCARCE: f64 = 0.75;

#[derive(Debug)]
pub(super) struct Admission {
    pub(super) sketch: FrequencySketch<COUNT_BITS>,
    /// Seed of the hash: without it a tenant could choose names that collide with others.
    seed: u128,
    per_bucket_max: u32,
}

/// The keys of one bucket, and the tenants that compete for them. It is no exact quota.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quota {
    pub(super) default: KeyId,
    pub(super) keys: u32,
    /// True while the class waits for the controller to confirm its counts, to be removed.
    pub(super) is_leaving: bool,
    /// Reports of frequent tenants that had no key where room is scarce, since the last tick.
    pub(super) contenders: u32,
    /// Requests in the last second or two of the most frequent of these tenants.
    pub(super) contenders_most: u32,
    /// Minimum requests of a tenant that is admitted where room is scarce: half of the most
    /// frequent tenant's.
    admitted_from: u32,
}

impl Admission {
    pub(super) fn new(seed: u128, keys_max: usize, per_bucket_max: usize) -> Self {
        Self {
            sketch: FrequencySketch::new(SKETCH_SLOTS.min(keys_max.saturating_mul(4))),
            seed,
            per_bucket_max: u32::try_from(per_bucket_max).unwrap_or(u32::MAX).max(1),
        }
    }

    /// Decides if a key that brings `came` requests is admitted. `is_full` is true if the whole table is full: the
    /// caller then admits none, and the key only contends.
    pub(super) fn admits(
        &mut self,
        key: &Key,
        came: u64,
        quota: &mut Quota,
        is_full: bool,
    ) -> bool {
        let scarce = f64::from(quota.keys) >= SCARCE * f64::from(self.per_bucket_max) || is_full;
        if !scarce {
            return true;
        }
        if came == 0 {
            return false;
        }
        let recent = self.sketch.add(self.hash(key), came);
        // Tenants that are admitted now count, too: the threshold follows the most frequent one.
        if recent >= ADMITTED_FROM {
            quota.contenders += 1;
            quota.contenders_most = quota.contenders_most.max(recent);
        }
        recent >= quota.admitted_from && quota.keys < self.per_bucket_max
    }

    pub(super) const fn is_full(&self, quota: &Quota) -> bool {
        quota.keys >= self.per_bucket_max
    }

    fn hash(&self, key: &Key) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.seed, key).hash(&mut hasher);
        hasher.finish()
    }
}

impl Quota {
    pub(super) const fn new(default: KeyId) -> Self {
        Self {
            default,
            keys: 1,
            is_leaving: false,
            contenders: 0,
            contenders_most: 0,
            admitted_from: ADMITTED_FROM,
        }
    }

    pub(super) const fn is_at_rest(&self) -> bool {
        self.contenders == 0 && self.admitted_from <= ADMITTED_FROM
    }

    /// The keys that may be evicted on one tick to make room. The number is a small part of the bucket, since
    /// evicted tenants may return.
    pub(super) fn evicted_max(&self) -> usize {
        self.contenders.min(self.keys / 16 + 1) as usize
    }

    /// Ends a tick. The threshold falls slowly, because not every client reports in every period.
    pub(super) fn on_tick(&mut self) {
        let faded = self.admitted_from - self.admitted_from / 8;
        self.admitted_from = (self.contenders_most / 2).max(faded).max(ADMITTED_FROM);
        (self.contenders, self.contenders_most) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::names::{Bucket, Tenant};

    use super::*;

    fn key(tenant: &str) -> Key {
        Key {
            bucket: Bucket::new("b").unwrap(),
            tenant: Tenant::new(tenant).unwrap(),
        }
    }

    #[test]
    fn scarce_room_admits_only_frequent_keys() {
        let mut admission = Admission::new(7, 100, 8);
        let mut quota = Quota {
            keys: 5,
            ..Quota::new(KeyId(0))
        };
        assert!(admission.admits(&key("a"), 0, &mut quota, false));
        quota.keys = 6;
        assert!(
            !admission.admits(&key("a"), 0, &mut quota, false),
            "room is scarce"
        );
        assert!(!admission.admits(&key("a"), 7, &mut quota, false));
        assert!(quota.is_at_rest());
        assert!(
            admission.admits(&key("a"), 1, &mut quota, false),
            "eight requests by now"
        );
        quota.keys = 8;
        assert!(
            !admission.admits(&key("b"), 100, &mut quota, false),
            "the bucket is full"
        );
        assert_eq!((quota.contenders, quota.contenders_most), (2, 100));
    }

    #[test]
    fn admission_threshold_rises_fast_and_falls_slowly() {
        let mut quota = Quota {
            contenders: 40,
            contenders_most: 100,
            keys: 32,
            ..Quota::new(KeyId(0))
        };
        assert_eq!(quota.evicted_max(), 3);
        quota.on_tick();
        assert_eq!(quota.admitted_from, 50);
        quota.on_tick();
        assert_eq!(quota.admitted_from, 44);
        (0..20).for_each(|_| quota.on_tick());
        assert!(quota.is_at_rest());
    }
}
