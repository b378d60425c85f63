//! The book of an instance: what it holds of each key of each quota, in shards that are locked for a moment.

mod allowance;
pub(super) mod holding;
mod lease;

pub(super) use holding::{Joined, Outcome, Waiter};
pub(super) use lease::lease_ends;

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use foldhash::quality::FixedState;
use hashbrown::HashTable;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::quota::{Quota, QuotaKey};

use crate::hot::sync::lock;
use holding::Holding;

/// The keys in the book, at most. The requests of further keys ask the store one by one, and are refused where a
/// bounded allowance would have to be counted.
pub(crate) const KEYS_MAX: usize = 100_000;
const SHARDS: usize = 32;
const SWEPT_EVERY: Duration = Duration::from_millis(100);
/// Minimum time to the end of tokens that are given back.
const GIVE_BEFORE_END: Duration = Duration::from_millis(100);
/// The tenant of the keys that all tenants share. No name has this character.
pub(super) const EVERY_TENANT: &str = "*";

/// Tokens that the store has debited, and the time when they end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeasedTokens {
    pub(crate) count: u64,
    pub(crate) ends: MonoTime,
}

impl LeasedTokens {
    /// Adds tokens; all end with the first.
    pub(super) fn and(self, other: Self) -> Self {
        match (self.count, other.count) {
            (_, 0) => self,
            (0, _) => other,
            (one, two) => Self {
                count: one + two,
                ends: self.ends.min(other.ends),
            },
        }
    }

    pub(super) fn returnable(self, now: MonoTime) -> bool {
        now + GIVE_BEFORE_END < self.ends
    }
}

/// The tokens that a call asks for: at least `least`, and with the lease `wanted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    pub(crate) least: u64,
    pub(crate) wanted: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The tokens taken; 0 if a bucket of the call had fewer than its least.
    pub(crate) granted: u64,
    /// The tokens left in the bucket.
    pub(crate) remaining: u64,
    pub(crate) refill_in: Duration,
}

#[derive(Clone, Copy)]
pub(super) struct BucketId<'a> {
    pub(super) quota: &'a Arc<Quota>,
    tenant: &'a str,
    hash: u64,
}

#[derive(Clone)]
pub(super) struct Key {
    pub(super) quota: Arc<Quota>,
    pub(super) tenant: Arc<str>,
}

impl BucketId<'_> {
    pub(super) fn key(&self) -> Key {
        Key {
            quota: Arc::clone(self.quota),
            tenant: self.tenant.into(),
        }
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.is(other.hash, other.quota, other.tenant)
    }

    fn is(&self, hash: u64, quota: &Quota, tenant: &str) -> bool {
        self.hash == hash
            && self.tenant == tenant
            && self.quota.rate == quota.rate
            && self.quota.name == quota.name
    }
}

pub(super) struct Book<W> {
    shards: Box<[Mutex<Shard<W>>]>,
    hasher: FixedState,
    keys_max: usize,
    patience: Duration,
}

struct Shard<W> {
    table: HashTable<Kept<W>>,
    swept_at: MonoTime,
}

struct Kept<W> {
    hash: u64,
    key: Key,
    holding: Holding<W>,
}

impl<W: Waiter> Book<W> {
    /// Makes an empty book for so many keys, whose requests wait for the store for `patience`.
    pub(super) fn new(keys_max: usize, seed: u64, patience: Duration) -> Self {
        let shard = || {
            Mutex::new(Shard {
                table: HashTable::new(),
                swept_at: MonoTime::ZERO,
            })
        };
        let shards = std::iter::repeat_with(shard).take(SHARDS).collect();
        Self {
            shards,
            hasher: FixedState::with_seed(seed),
            keys_max,
            patience,
        }
    }

    pub(super) fn id<'a>(&self, quota: &'a Arc<Quota>, tenant: &'a str) -> BucketId<'a> {
        let tenant = match quota.key {
            QuotaKey::Tenant => tenant,
            QuotaKey::Global => EVERY_TENANT,
        };
        let mut hasher = self.hasher.build_hasher();
        quota.name.as_str().hash(&mut hasher);
        quota.rate.hash(&mut hasher);
        tenant.hash(&mut hasher);
        BucketId {
            quota,
            tenant,
            hash: hasher.finish(),
        }
    }

    /// Runs `f` on the state of a key; `None` if the book has none.
    pub(super) fn known<T>(
        &self,
        id: &BucketId<'_>,
        f: impl FnOnce(&mut Holding<W>) -> T,
    ) -> Option<T> {
        let mut shard = self.lock(id.hash);
        let kept = shard.table.find_mut(id.hash, |kept| kept.is(id))?;
        Some(f(&mut kept.holding))
    }

    /// Runs `f` on the state of a key, which is made if it is new; `None` without room for it.
    pub(super) fn with<T>(
        &self,
        id: &BucketId<'_>,
        now: MonoTime,
        f: impl FnOnce(&mut Holding<W>) -> T,
    ) -> Option<T> {
        let mut shard = self.lock(id.hash);
        let is_full = shard.table.len() >= (self.keys_max / SHARDS).max(1);
        if is_full && shard.table.find(id.hash, |kept| kept.is(id)).is_none() && !shard.sweep(now) {
            return None;
        }
        let kept = || Kept {
            hash: id.hash,
            key: id.key(),
            holding: Holding::new(self.patience),
        };
        let entry = shard
            .table
            .entry(id.hash, |kept| kept.is(id), |kept| kept.hash);
        Some(f(&mut entry.or_insert_with(kept).into_mut().holding))
    }

    pub(super) fn drain(&self) -> Vec<(Key, LeasedTokens)> {
        let mut leases = Vec::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            let held = shard
                .table
                .iter_mut()
                .map(|kept| (kept.key.clone(), kept.holding.lease.drain()));
            leases.extend(held.filter(|(_, tokens)| tokens.count > 0));
        }
        leases
    }

    /// Returns the number of keys, and the tokens of their leases.
    pub(super) fn held(&self) -> (usize, u64) {
        let shards = self.shards.iter().map(|shard| {
            let shard = lock(shard);
            let leased = shard.table.iter().fold(0, |sum: u64, kept| {
                sum.saturating_add(kept.holding.lease.tokens)
            });
            (shard.table.len(), leased)
        });
        shards.fold((0, 0), |(keys, leased), (more, tokens)| {
            (keys + more, leased.saturating_add(tokens))
        })
    }

    fn lock(&self, hash: u64) -> MutexGuard<'_, Shard<W>> {
        // The table uses the low bits and the highest seven.
        let at = (hash >> 32) as usize % SHARDS;
        debug_assert_eq!(self.shards.len(), SHARDS);
        lock(&self.shards[at])
    }
}

impl<W: Waiter> Shard<W> {
    fn sweep(&mut self, now: MonoTime) -> bool {
        if now < self.swept_at + SWEPT_EVERY && self.swept_at > MonoTime::ZERO {
            return false;
        }
        self.swept_at = now;
        let before = self.table.len();
        self.table.retain(|kept| !kept.holding.is_idle(now));
        self.table.len() < before
    }
}

impl<W> Kept<W> {
    fn is(&self, id: &BucketId<'_>) -> bool {
        id.is(self.hash, &self.key.quota, &self.key.tenant)
    }
}
