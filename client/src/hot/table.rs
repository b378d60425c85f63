//! The table that decisions read and write: interned names, the directive of each key, the tokens of guards,
//! and the counters of each thread.

use plimsoll_core::decision::token_bucket::Tokens;
use plimsoll_core::names::{DEFAULT_TENANT, InvalidName, check_name};

use crate::hot::directive_word::{AtomicDirectiveWord, DirectiveWord};
use crate::hot::guard_pool::GuardPool;
use crate::hot::shared_key::SharedKey;
use crate::hot::sync::{AtomicU32, AtomicU64, Ordering};
use crate::hot::thread_counters::CounterBlock;
use crate::hot::thread_counters::ThreadCounters;
use crate::interner::{Interner, Lookup};
use crate::limiter::Peek;
use crate::responses::Responses;

/// The largest number of buckets of a limiter, which is also bounded by the number of keys.
pub(crate) const BUCKETS_MAX: usize = 1_024;

/// The ids of a bucket in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BucketPlace {
    pub(crate) bucket: u32,
    /// The key of the default class, which tenants without room or with an invalid name share.
    pub(crate) default_key: u32,
}

/// The ids of a key in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyPlace {
    pub(crate) key: u32,
    /// The key of its bucket's default class, whose directive applies while the key has none of its own.
    pub(crate) default_key: u32,
}

/// All buckets and keys of one limiter: names, directives and counters. Everything is allocated at the start.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) buckets: Interner,
    pub(crate) keys: Interner,
    /// The key of each bucket's default class plus one; 0 until it is assigned.
    default_keys: Box<[AtomicU32]>,
    words: Box<[AtomicDirectiveWord]>,
    pub(crate) counters: ThreadCounters,
    pools: Box<[GuardPool]>,
    /// The draw key of coherent coins.
    pub(crate) draw_key: SharedKey,
    /// Counts the refills of the guards.
    refills: AtomicU32,
    /// Requests admitted without a key to count them for: the bucket has no room or an invalid name.
    untracked: AtomicU64,
    /// The outcomes of admitted requests, recorded by the middleware.
    pub(crate) responses: Responses,
}

impl Table {
    /// Makes a table for at most `keys_max` keys and `thread_slots` threads with counters of their own.
    pub(crate) fn new(keys_max: usize, thread_slots: usize, seed: u64) -> Self {
        let keys_max = keys_max.max(1);
        // Every bucket takes at least one key, that of its default class.
        let buckets_max = BUCKETS_MAX.min(keys_max);
        Self {
            buckets: Interner::new(buckets_max, seed),
            keys: Interner::new(keys_max, seed),
            default_keys: (0..buckets_max).map(|_| AtomicU32::new(0)).collect(),
            words: (0..keys_max).map(|_| AtomicDirectiveWord::default()).collect(),
            counters: ThreadCounters::new(keys_max, thread_slots),
            pools: (0..keys_max).map(|_| GuardPool::default()).collect(),
            draw_key: SharedKey::default(),
            refills: AtomicU32::new(0),
            untracked: AtomicU64::new(0),
            responses: Responses::new(buckets_max),
        }
    }

    /// Declares a bucket, off the request path. Returns `None` when the table is full.
    pub(crate) fn declare(&self, bucket: &str) -> Result<Option<BucketPlace>, InvalidName> {
        check_name(bucket)?;
        let Some(id) = self.buckets.intern(0, bucket) else { return Ok(None) };
        let Some(default_key) = self.keys.pin(id, DEFAULT_TENANT) else { return Ok(None) };
        Ok(self.set_default_key(id, default_key))
    }

    /// Returns the place of a bucket, on the request path.
    fn bucket(&self, bucket: &str) -> Option<BucketPlace> {
        let Lookup::Id(id) = self.buckets.look_up(0, bucket) else { return None };
        match self.default_key(id) {
            None => match self.keys.try_pin(id, DEFAULT_TENANT) {
                Lookup::Id(default_key) => self.set_default_key(id, default_key),
                _ => None,
            },
            Some(default_key) => Some(BucketPlace { bucket: id, default_key }),
        }
    }

    /// Returns the key of a bucket's default class, once it is assigned.
    pub(crate) fn default_key(&self, bucket: u32) -> Option<u32> {
        self.default_keys.get(bucket as usize)?.load(Ordering::Acquire).checked_sub(1)
    }

    fn set_default_key(&self, bucket: u32, default_key: u32) -> Option<BucketPlace> {
        self.default_keys.get(bucket as usize)?.store(default_key + 1, Ordering::Release);
        Some(BucketPlace { bucket, default_key })
    }

    /// Returns the place of a tenant's key: its own, or the default class where the name is invalid, or too
    /// rare to get one of the remaining places.
    #[inline]
    pub(crate) fn key(&self, place: BucketPlace, tenant: &str) -> KeyPlace {
        let key = match self.keys.look_up(place.bucket, tenant) {
            Lookup::Id(key) => key,
            _ => place.default_key,
        };
        KeyPlace { key, default_key: place.default_key }
    }

    /// Returns the place of a tenant's key if it has one, else the default class's. Inserts nothing.
    pub(crate) fn known(&self, place: BucketPlace, tenant: &str) -> KeyPlace {
        let key = self.keys.known(place.bucket, tenant).unwrap_or(place.default_key);
        KeyPlace { key, default_key: place.default_key }
    }

    /// Previews the decision about a request.
    pub(crate) fn peek(&self, place: KeyPlace) -> Peek {
        let (source, word) = self.directive_of(place);
        let pool = self.pools.get(source as usize);
        Peek {
            ratio: word.ratio(),
            enforced: word.is_enforced(),
            exhausted: word.is_guarded() && pool.is_some_and(GuardPool::is_empty),
        }
    }

    /// Returns the place of a key by names; `None` where the bucket has no room or an invalid name. Such a
    /// request is counted as untracked.
    pub(crate) fn place(&self, bucket: &str, tenant: &str) -> Option<KeyPlace> {
        let place = self.bucket(bucket).map(|place| self.key(place, tenant));
        if place.is_none() {
            self.untracked.fetch_add(1, Ordering::Relaxed);
        }
        place
    }

    /// Returns the directive that applies to a key, and the key that it belongs to: its own, or its bucket's
    /// default class.
    #[inline]
    pub(crate) fn directive_of(&self, place: KeyPlace) -> (u32, DirectiveWord) {
        match self.word(place.key) {
            DirectiveWord::NOTHING => (place.default_key, self.word(place.default_key)),
            own => (place.key, own),
        }
    }

    #[inline]
    fn word(&self, key: u32) -> DirectiveWord {
        self.words.get(key as usize).map_or(DirectiveWord::NOTHING, AtomicDirectiveWord::load)
    }

    /// True if a key has a directive of its own.
    pub(crate) fn has_own_directive(&self, key: u32) -> bool {
        self.word(key) != DirectiveWord::NOTHING
    }

    /// Returns the number of the last refill, modulo 2^16.
    #[inline]
    pub(crate) fn refill_number(&self) -> u16 {
        self.refills.load(Ordering::Acquire) as u16
    }

    /// Takes `n` tokens of a key's guard.
    #[cold]
    pub(crate) fn take(&self, key: u32, n: u32, counters: &CounterBlock) -> bool {
        let refill = self.refill_number();
        self.pools.get(key as usize).is_none_or(|pool| pool.take(counters, key, refill, n))
    }

    /// Returns a token to a key's guard.
    pub(crate) fn give_back(&self, key: u32, counters: &CounterBlock) {
        let refill = self.refill_number();
        if let Some(pool) = self.pools.get(key as usize) {
            pool.give_back(counters, key, refill, 1);
        }
    }

    /// Sets the tokens of a key's guard, which take effect with the next [refill](Self::refill).
    pub(crate) fn fill(&self, key: u32, tokens: Tokens, depth: Tokens) {
        debug_assert!((key as usize) < self.pools.len(), "key {key} is an id of the interner");
        if let Some(pool) = self.pools.get(key as usize) {
            pool.fill(tokens.whole(), depth.as_f64(), self.counters.slots_used());
        }
    }

    /// Begins a refill: voids the batches that threads hold, so that they take new ones from the pools.
    pub(crate) fn refill(&self) {
        self.refills.fetch_add(1, Ordering::Release);
    }

    /// Publishes the directive of a key, and of the keys that share it.
    pub(crate) fn publish(&self, key: u32, word: DirectiveWord) {
        debug_assert!((key as usize) < self.words.len(), "key {key} is an id of the interner");
        if let Some(held) = self.words.get(key as usize) {
            held.store(word);
        }
    }

    /// Returns the number of requests admitted without a key to count them for.
    pub(crate) fn untracked(&self) -> u64 {
        self.untracked.load(Ordering::Relaxed)
    }
}
