//! Records what each holder, the name of an access token, took by `QUOTA.TAKE` and may give back: a
//! holder without the right to reset buckets must not fill them.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;

use crate::operation::{BucketName, Taken};

const SHARDS: usize = 16;
/// Maximum number of leases of one shard, each of one holder and one bucket. What is taken without
/// room for a lease cannot be given back.
const LEASES_PER_SHARD: usize = 16_384;
/// Lifetime of leases of buckets that are refilled more often: the same as in the client library.
const LASTS_MS: u64 = 1_000;

/// Clones share the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leases {
    hasher: RandomState,
    shards: Arc<[Mutex<Shard>; SHARDS]>,
}

#[derive(Debug, Default)]
struct Shard {
    leases: HashMap<u64, Lease, RandomState>,
    /// Ended leases are not searched for before this time.
    full_until_ms: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Lease {
    tokens: u64,
    /// Next refill of the bucket, or `LASTS_MS` after the latest take; what earlier ones granted stays. Tokens given back after a refill would
    /// be added on top.
    ends_ms: u64,
}

impl Leases {
    fn shard(&self, holder: &str, bucket: &BucketName<'_>) -> (u64, MutexGuard<'_, Shard>) {
        let hash = self.hasher.hash_one((holder, bucket));
        // The remainder is below the number of shards.
        let shard = &self.shards[hash as usize % SHARDS];
        (hash, shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes granted tokens, which the holder may give back until the lease ends.
    pub(crate) fn note(&self, holder: &str, bucket: &BucketName<'_>, taken: &Taken, now_ms: u64) {
        if taken.granted == 0 {
            return;
        }
        let lasts_ms = if bucket.rate.every_ms() < LASTS_MS {
            LASTS_MS
        } else {
            taken.refill_in_ms
        };
        let (hash, mut shard) = self.shard(holder, bucket);
        if !shard.has_room(hash, now_ms) {
            return;
        }
        let lease = shard.leases.entry(hash).or_default();
        let before = if now_ms < lease.ends_ms {
            lease.tokens
        } else {
            0
        };
        *lease = Lease {
            tokens: before.saturating_add(taken.granted),
            ends_ms: now_ms.saturating_add(lasts_ms),
        };
    }

    /// Removes returned tokens from the amount that the holder may give. Returns false if it is too
    /// small.
    pub(crate) fn give(
        &self,
        holder: &str,
        bucket: &BucketName<'_>,
        tokens: u64,
        now_ms: u64,
    ) -> bool {
        let (hash, mut shard) = self.shard(holder, bucket);
        let lease = shard
            .leases
            .get_mut(&hash)
            .filter(|lease| now_ms < lease.ends_ms);
        match lease.and_then(|lease| Some((lease.tokens.checked_sub(tokens)?, lease))) {
            Some((left, lease)) => {
                lease.tokens = left;
                true
            }
            None => tokens == 0,
        }
    }
}

impl Shard {
    fn has_room(&mut self, hash: u64, now_ms: u64) -> bool {
        if self.leases.len() < LEASES_PER_SHARD || self.leases.contains_key(&hash) {
            return true;
        }
        if now_ms >= self.full_until_ms {
            self.leases
                .retain(|_, lease| lease.tokens > 0 && now_ms < lease.ends_ms);
            self.full_until_ms = now_ms.saturating_add(LASTS_MS);
        }
        self.leases.len() < LEASES_PER_SHARD
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::quota::QuotaRate;

    use super::*;

    const LEASES_MAX: usize = SHARDS * LEASES_PER_SHARD;

    fn bucket(key: &[u8]) -> BucketName<'_> {
        BucketName {
            key,
            rate: QuotaRate::new(100, 100, 60_000).unwrap(),
        }
    }

    fn taken(granted: u64) -> Taken {
        Taken {
            granted,
            remaining: 0,
            refill_in_ms: 60_000,
            holds_in_ms: None,
        }
    }

    #[test]
    fn holder_returns_tokens_until_the_refill() {
        let leases = Leases::default();
        leases.note("shop", &bucket(b"a"), &taken(10), 5);
        for (holder, key, tokens, now, may_give) in [
            ("other", "a", 1, 6, false),
            ("shop", "b", 1, 6, false),
            ("shop", "a", 11, 6, false),
            ("shop", "a", 4, 6, true),
            ("shop", "a", 7, 6, false),
            ("shop", "a", 1, 60_005, false),
            ("shop", "a", 6, 60_004, true),
            ("shop", "a", 1, 60_004, false),
            ("shop", "a", 0, 60_004, true),
        ] {
            assert_eq!(
                leases.give(holder, &bucket(key.as_bytes()), tokens, now),
                may_give,
                "{tokens} at {now}"
            );
        }
    }

    #[test]
    fn ended_leases_make_room_within_bounds() {
        let leases = Leases::default();
        let take =
            |number: u64, now| leases.note("shop", &bucket(&number.to_le_bytes()), &taken(1), now);
        let count = || {
            leases
                .shards
                .iter()
                .map(|shard| shard.lock().unwrap().leases.len())
                .sum::<usize>()
        };
        let more = LEASES_MAX as u64 * 5 / 4;
        (0..more).for_each(|number| take(number, 0));
        assert_eq!(count(), LEASES_MAX);
        take(more, 60_000);
        assert!(count() < LEASES_MAX);
        assert!(leases.give("shop", &bucket(&more.to_le_bytes()), 1, 60_001));
    }
}
