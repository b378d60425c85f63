//! What a decision is made from: the directives a service holds by key, its coins, its guards and its counts.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use plimsoll_core::bucket::{DEFAULT_TENANT, InvalidName, check_name};
use plimsoll_core::coin;
use plimsoll_core::ratio::DropRatio;
use plimsoll_core::verdict::{Reason, Refusal, Verdict};

use crate::coins::{Coins, Stripes};
use crate::counters::{Counters, Outcome};
use crate::draws::Draws;
use crate::names::{Found, Names};
use crate::pool::Pool;
use crate::word::{SharedWord, Word};

/// The most buckets one limiter knows; no more than keys in any case.
pub(crate) const BUCKETS_MAX: usize = 1_024;

/// Where a bucket stands in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BucketPlace {
    pub(crate) bucket: u32,
    /// The key of the class that tenants without room or with an invalid name fall into.
    pub(crate) default_key: u32,
}

/// Where a key stands in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyPlace {
    pub(crate) key: u32,
    /// The key of its bucket's default class, which it follows while it has no directive of its own.
    pub(crate) default_key: u32,
}

/// What holds for one key.
#[derive(Debug, Default)]
struct Held {
    word: SharedWord,
    pool: Pool,
}

/// All buckets and keys of one limiter: names, what holds, coins and counters. Everything is allocated at the start.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) buckets: Names,
    pub(crate) keys: Names,
    /// The default key of each bucket plus one; 0 until it is given.
    default_keys: Box<[AtomicU32]>,
    held: Box<[Held]>,
    pub(crate) stripes: Stripes,
    pub(crate) counters: Counters,
    /// Requests admitted without a count of their own: no room for the bucket, or an invalid name.
    unplaced: AtomicU64,
}

impl Table {
    /// A table for at most `keys_max` keys.
    pub(crate) fn new(keys_max: usize, seed: u64) -> Self {
        let keys_max = keys_max.max(1);
        // Every bucket takes a key at least, that of its default class.
        let buckets_max = BUCKETS_MAX.min(keys_max);
        Self {
            buckets: Names::new(buckets_max, seed),
            keys: Names::new(keys_max, seed),
            default_keys: (0..buckets_max).map(|_| AtomicU32::new(0)).collect(),
            held: (0..keys_max).map(|_| Held::default()).collect(),
            stripes: Stripes::new(keys_max),
            counters: Counters::new(keys_max),
            unplaced: AtomicU64::new(0),
        }
    }

    /// The place of a bucket, off the request path. `None` when the table is full.
    pub(crate) fn declare(&self, bucket: &str) -> Result<Option<BucketPlace>, InvalidName> {
        check_name(bucket)?;
        let Some(id) = self.buckets.intern(0, bucket) else { return Ok(None) };
        let Some(default_key) = self.keys.pin(id, DEFAULT_TENANT) else { return Ok(None) };
        Ok(self.remember_default(id, default_key))
    }

    /// The place of a bucket, on the request path.
    fn bucket(&self, bucket: &str) -> Option<BucketPlace> {
        let Found::Id(id) = self.buckets.look_up(0, bucket) else { return None };
        match self.default_key(id) {
            None => match self.keys.try_pin(id, DEFAULT_TENANT) {
                Found::Id(default_key) => self.remember_default(id, default_key),
                _ => None,
            },
            Some(default_key) => Some(BucketPlace { bucket: id, default_key }),
        }
    }

    /// The key of a bucket's default class, once it is given.
    pub(crate) fn default_key(&self, bucket: u32) -> Option<u32> {
        self.default_keys.get(bucket as usize)?.load(Ordering::Acquire).checked_sub(1)
    }

    fn remember_default(&self, bucket: u32, default_key: u32) -> Option<BucketPlace> {
        self.default_keys.get(bucket as usize)?.store(default_key + 1, Ordering::Release);
        Some(BucketPlace { bucket, default_key })
    }

    /// The place of a tenant's key: its own, or the default class where there is no room for one that is asked for so
    /// rarely, or the name is invalid.
    #[inline]
    pub(crate) fn key(&self, place: BucketPlace, tenant: &str) -> KeyPlace {
        let key = match self.keys.look_up(place.bucket, tenant) {
            Found::Id(key) => key,
            _ => place.default_key,
        };
        KeyPlace { key, default_key: place.default_key }
    }

    /// Decides by names.
    pub(crate) fn admit(
        &self,
        bucket: &str,
        tenant: &str,
        coins: &mut impl Coins,
        draws: &mut impl Draws,
    ) -> Verdict {
        match self.bucket(bucket) {
            Some(place) => self.decide(self.key(place, tenant), coins, draws),
            None => {
                self.unplaced.fetch_add(1, Ordering::Relaxed);
                Verdict::Admit
            }
        }
    }

    /// Decides and counts. Never blocks, allocates, makes a system call or fails.
    #[inline]
    pub(crate) fn decide(&self, place: KeyPlace, coins: &mut impl Coins, draws: &mut impl Draws) -> Verdict {
        let (directing, word) = self.directing(place);
        let outcome =
            if word.admits() { Outcome::Admitted } else { self.weigh(directing, word, coins, draws) };
        self.counters.add(place.key, outcome);
        match outcome {
            Outcome::Admitted | Outcome::WouldDropped | Outcome::WouldGuardDropped => Verdict::Admit,
            Outcome::Dropped | Outcome::GuardDropped => {
                Verdict::Refuse(Refusal { reason: Reason::ClusterOverload, retry_after: draws.retry_after() })
            }
        }
    }

    /// The coin first, then the guard: a request that the coin refuses takes no token. Both decide alike whether
    /// refusals are carried out or not, or what is counted in shadow would say nothing about what enforcing brings.
    #[inline]
    fn weigh(&self, directing: u32, word: Word, coins: &mut impl Coins, draws: &mut impl Draws) -> Outcome {
        let ratio = word.ratio();
        let by_coin = if ratio == DropRatio::NONE {
            false
        } else if word.is_independent() {
            coin::refuses(ratio, draws.draw())
        } else {
            // The coin is that of the directive, not of each tenant that follows it: tenants whose names come and go
            // would otherwise all begin anew.
            coins.with(directing, |state| state.refuses(ratio, || draws.draw()))
        };
        match (by_coin, word.is_enforced()) {
            (true, true) => Outcome::Dropped,
            (true, false) => Outcome::WouldDropped,
            (false, _) if !word.is_guarded() || self.take(directing) => Outcome::Admitted,
            (false, true) => Outcome::GuardDropped,
            (false, false) => Outcome::WouldGuardDropped,
        }
    }

    /// Whose directive holds for a key, and what it says: its own, or its bucket's default class's.
    #[inline]
    pub(crate) fn directing(&self, place: KeyPlace) -> (u32, Word) {
        match self.word(place.key) {
            Word::NOTHING => (place.default_key, self.word(place.default_key)),
            own => (place.key, own),
        }
    }

    #[inline]
    fn word(&self, key: u32) -> Word {
        self.held.get(key as usize).map_or(Word::NOTHING, |held| held.word.load())
    }

    /// Whether a key has a directive of its own.
    pub(crate) fn has_word(&self, key: u32) -> bool {
        self.word(key) != Word::NOTHING
    }

    #[inline]
    fn take(&self, key: u32) -> bool {
        self.held.get(key as usize).is_none_or(|held| held.pool.take())
    }

    /// Publishes what holds for one key, and for those that follow it.
    pub(crate) fn publish(&self, key: u32, word: Word) {
        if let Some(held) = self.held.get(key as usize) {
            held.word.store(word);
        }
    }

    /// The tokens of a key's guard; `None` for a key there is no room for.
    pub(crate) fn pool(&self, key: u32) -> Option<&Pool> {
        self.held.get(key as usize).map(|held| &held.pool)
    }

    /// Requests admitted without a count of their own.
    pub(crate) fn unplaced(&self) -> u64 {
        self.unplaced.load(Ordering::Relaxed)
    }
}
