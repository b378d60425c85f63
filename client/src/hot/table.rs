//! The table that decisions read and write: interned names, the directive of each key, the tokens of guards,
//! and the counters of each thread.

use std::sync::Arc;

use plimsoll_core::decision::token_bucket::Tokens;
use plimsoll_core::names::{DEFAULT_TENANT, InvalidName, check_name};

use crate::hot::directive_word::{DirectiveWord, KeyWord};
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
    /// The slot of that key.
    pub(crate) default_slot: u32,
}

/// The ids of a key in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyPlace {
    pub(crate) key: u32,
    /// The slot of the key, with its directive.
    pub(crate) slot: u32,
    /// The key of its bucket's default class, whose directive applies while the key has none of its own.
    pub(crate) default_key: u32,
    /// The slot of that key.
    pub(crate) default_slot: u32,
}

/// The key that a decision counts for, and the directive that it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) key: u32,
    /// The directive, and the key that it belongs to: the same, or its bucket's default class.
    follows: KeyWord,
}

impl Target {
    /// Returns the key that the directive belongs to.
    #[inline]
    pub(crate) const fn source(self) -> u32 {
        self.follows.id()
    }

    /// Returns the directive.
    #[inline]
    pub(crate) const fn word(self) -> DirectiveWord {
        self.follows.directive()
    }
}

/// All buckets and keys of one limiter: names, directives and counters. Everything is allocated at the start.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) buckets: Interner,
    pub(crate) keys: Interner,
    /// The key of each bucket's default class plus one; 0 until it is assigned.
    default_keys: Box<[AtomicU32]>,
    pub(crate) counters: ThreadCounters,
    pools: Box<[GuardPool]>,
    /// The draw key of coherent coins.
    pub(crate) draw_key: SharedKey,
    /// Counts the refills of the guards.
    refills: AtomicU32,
    /// Requests admitted without a key to count them for: the bucket has no room or an invalid name.
    untracked: AtomicU64,
    /// The outcomes of admitted requests, recorded by the middleware.
    pub(crate) responses: Arc<Responses>,
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
            counters: ThreadCounters::new(keys_max, thread_slots),
            pools: (0..keys_max).map(|_| GuardPool::default()).collect(),
            draw_key: SharedKey::default(),
            refills: AtomicU32::new(0),
            untracked: AtomicU64::new(0),
            responses: Responses::new(buckets_max, thread_slots),
        }
    }

    /// Declares a bucket, off the request path. Returns `None` when the table is full.
    pub(crate) fn declare(&self, bucket: &str) -> Result<Option<BucketPlace>, InvalidName> {
        check_name(bucket)?;
        let Some(id) = self.buckets.intern(0, bucket) else { return Ok(None) };
        Ok(self.keys.pin(id, DEFAULT_TENANT).and_then(|key| self.set_default_key(id, key)))
    }

    /// Returns the place of a bucket, on the request path.
    fn bucket(&self, bucket: &str) -> Option<BucketPlace> {
        let id = self.buckets.look_up(0, bucket).id()?;
        match self.default_key(id) {
            None => self.set_default_key(id, self.keys.try_pin(id, DEFAULT_TENANT).id()?),
            Some(default_key) => Some(self.bucket_place(id, default_key)),
        }
    }

    fn bucket_place(&self, bucket: u32, default_key: u32) -> BucketPlace {
        BucketPlace { bucket, default_key, default_slot: self.keys.slot_of(default_key) }
    }

    /// Returns the key of a bucket's default class, once it is assigned.
    pub(crate) fn default_key(&self, bucket: u32) -> Option<u32> {
        self.default_keys.get(bucket as usize)?.load(Ordering::Acquire).checked_sub(1)
    }

    fn set_default_key(&self, bucket: u32, default_key: u32) -> Option<BucketPlace> {
        self.default_keys.get(bucket as usize)?.store(default_key + 1, Ordering::Release);
        Some(self.bucket_place(bucket, default_key))
    }

    /// Returns the target of a tenant's requests: its own key, or the default class where the name is
    /// invalid, or too rare to get one of the remaining places.
    #[inline]
    pub(crate) fn target(&self, place: BucketPlace, tenant: &str) -> Target {
        let own = match self.keys.look_up(place.bucket, tenant) {
            Lookup::Found(own) => own,
            _ => self.keys.word(place.default_slot),
        };
        self.follow(own, place.default_slot)
    }

    /// Returns the target of a tenant's requests if it has a key, else the default class's. Inserts nothing.
    pub(crate) fn known_target(&self, place: BucketPlace, tenant: &str) -> Target {
        let own = self.keys.known(place.bucket, tenant);
        self.follow(own.unwrap_or_else(|| self.keys.word(place.default_slot)), place.default_slot)
    }

    /// Returns the target of a key's requests.
    #[inline]
    pub(crate) fn target_of(&self, place: KeyPlace) -> Target {
        Target { key: place.key, ..self.follow(self.keys.word(place.slot), place.default_slot) }
    }

    /// Lets a key without a directive follow its bucket's default class.
    #[inline]
    fn follow(&self, own: KeyWord, default_slot: u32) -> Target {
        let follows = match own.directive() {
            DirectiveWord::NOTHING => self.keys.word(default_slot),
            _ => own,
        };
        Target { key: own.id(), follows }
    }

    /// Returns the place of a key.
    pub(crate) fn place_of(&self, key: u32, default_key: u32) -> KeyPlace {
        let [slot, default_slot] = [key, default_key].map(|key| self.keys.slot_of(key));
        KeyPlace { key, slot, default_key, default_slot }
    }

    /// Previews the decision about a request.
    pub(crate) fn peek(&self, target: Target) -> Peek {
        let word = target.word();
        let pool = self.pools.get(target.source() as usize);
        Peek {
            ratio: word.ratio(),
            enforced: word.is_enforced(),
            exhausted: word.is_guarded() && pool.is_some_and(GuardPool::is_empty),
        }
    }

    /// Returns the target of a request by names; `None` where the bucket has no room or an invalid name. Such
    /// a request is counted as untracked.
    pub(crate) fn target_by_names(&self, bucket: &str, tenant: &str) -> Option<Target> {
        let target = self.bucket(bucket).map(|place| self.target(place, tenant));
        if target.is_none() {
            self.untracked.fetch_add(1, Ordering::Relaxed);
        }
        target
    }

    /// True if a key has a directive of its own.
    pub(crate) fn has_own_directive(&self, key: u32) -> bool {
        self.keys.word(self.keys.slot_of(key)).directive() != DirectiveWord::NOTHING
    }

    /// Returns the number of the last refill, modulo 2^16.
    #[inline]
    pub(crate) fn refill_number(&self) -> u16 {
        self.refills.load(Ordering::Acquire) as u16
    }

    /// Takes `n` tokens of a key's guard.
    #[cold]
    pub(crate) fn take(&self, key: u32, n: u32, counters: CounterBlock<'_>) -> bool {
        let refill = self.refill_number();
        self.pools.get(key as usize).is_none_or(|pool| pool.take(counters, key, refill, n))
    }

    /// Returns a token to a key's guard.
    pub(crate) fn give_back(&self, key: u32, counters: CounterBlock<'_>) {
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
        self.keys.publish(key, word);
    }

    /// Returns the number of requests admitted without a key to count them for.
    pub(crate) fn untracked(&self) -> u64 {
        self.untracked.load(Ordering::Relaxed)
    }
}
