//! What a decision is made from: names, what is directed for each key, the tokens of guards, and the cells of those who
//! decide.

use plimsoll_core::names::{DEFAULT_TENANT, InvalidName, check_name};
use plimsoll_core::decision::token_bucket::Tokens;

use crate::limiter::Outlook;
use crate::interner::{Found, Names};
use crate::hot::guard_pool::Pool;
use crate::responses::Responses;
use crate::hot::shared_key::SharedKey;
use crate::hot::thread_counters::Slab;
use crate::hot::thread_counters::Slabs;
use crate::hot::sync::{AtomicU32, AtomicU64, Ordering};
use crate::hot::directive_word::{SharedWord, Word};

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

/// All buckets and keys of one limiter: names, what holds, and the cells of all who decide. Everything is
/// allocated at the start.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) buckets: Names,
    pub(crate) keys: Names,
    /// The default key of each bucket plus one; 0 until it is given.
    default_keys: Box<[AtomicU32]>,
    words: Box<[SharedWord]>,
    pub(crate) slabs: Slabs,
    pools: Box<[Pool]>,
    /// What coherent coins draw by.
    pub(crate) draw_key: SharedKey,
    /// Counts the refills of the guards.
    refills: AtomicU32,
    /// Requests admitted without a count of their own: no room for the bucket, or an invalid name.
    unplaced: AtomicU64,
    /// What became of those that were let through, where responses are watched.
    pub(crate) responses: Responses,
}

impl Table {
    /// A table for at most `keys_max` keys, for `seats` threads with cells of their own.
    pub(crate) fn new(keys_max: usize, seats: usize, seed: u64) -> Self {
        let keys_max = keys_max.max(1);
        // Every bucket takes a key at least, that of its default class.
        let buckets_max = BUCKETS_MAX.min(keys_max);
        Self {
            buckets: Names::new(buckets_max, seed),
            keys: Names::new(keys_max, seed),
            default_keys: (0..buckets_max).map(|_| AtomicU32::new(0)).collect(),
            words: (0..keys_max).map(|_| SharedWord::default()).collect(),
            slabs: Slabs::new(keys_max, seats),
            pools: (0..keys_max).map(|_| Pool::default()).collect(),
            draw_key: SharedKey::default(),
            refills: AtomicU32::new(0),
            unplaced: AtomicU64::new(0),
            responses: Responses::new(buckets_max),
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

    /// The place of a tenant's key if it has one, else its class's: looks, and enters nothing.
    pub(crate) fn known(&self, place: BucketPlace, tenant: &str) -> KeyPlace {
        let key = self.keys.known(place.bucket, tenant).unwrap_or(place.default_key);
        KeyPlace { key, default_key: place.default_key }
    }

    /// What would become of a request now.
    pub(crate) fn outlook(&self, place: KeyPlace) -> Outlook {
        let (directing, word) = self.directing(place);
        let pool = self.pools.get(directing as usize);
        Outlook {
            ratio: word.ratio(),
            enforced: word.is_enforced(),
            exhausted: word.is_guarded() && pool.is_some_and(Pool::is_empty),
        }
    }

    /// The place of a key by names; `None` where the bucket has no room or an invalid name. Such requests are admitted
    /// and counted here, without a count of their own.
    pub(crate) fn place(&self, bucket: &str, tenant: &str) -> Option<KeyPlace> {
        let place = self.bucket(bucket).map(|place| self.key(place, tenant));
        if place.is_none() {
            self.unplaced.fetch_add(1, Ordering::Relaxed);
        }
        place
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
        self.words.get(key as usize).map_or(Word::NOTHING, SharedWord::load)
    }

    /// Whether a key has a directive of its own.
    pub(crate) fn has_word(&self, key: u32) -> bool {
        self.word(key) != Word::NOTHING
    }

    /// Which refill of the guards was the last.
    #[inline]
    pub(crate) fn refill_number(&self) -> u16 {
        self.refills.load(Ordering::Acquire) as u16
    }

    /// Takes `n` tokens of a key's guard.
    #[cold]
    pub(crate) fn take(&self, key: u32, n: u32, slab: &Slab) -> bool {
        let refill = self.refill_number();
        self.pools.get(key as usize).is_none_or(|pool| pool.take(slab, key, refill, n))
    }

    /// Gives back a token that was just taken.
    pub(crate) fn give_back(&self, key: u32, slab: &Slab) {
        let refill = self.refill_number();
        if let Some(pool) = self.pools.get(key as usize) {
            pool.give_back(slab, key, refill, 1);
        }
    }

    /// Says how many tokens a key's guard has from the next [refill](Self::refill) on.
    pub(crate) fn fill(&self, key: u32, tokens: Tokens, depth: Tokens) {
        if let Some(pool) = self.pools.get(key as usize) {
            pool.fill(tokens.whole(), depth.as_f64(), self.slabs.seated());
        }
    }

    /// A refill begins: tokens that threads took in advance are void, and those of the pools can be taken.
    pub(crate) fn refill(&self) {
        self.refills.fetch_add(1, Ordering::Release);
    }

    /// Publishes what holds for one key, and for those that follow it.
    pub(crate) fn publish(&self, key: u32, word: Word) {
        if let Some(held) = self.words.get(key as usize) {
            held.store(word);
        }
    }

    /// Requests admitted without a count of their own.
    pub(crate) fn unplaced(&self) -> u64 {
        self.unplaced.load(Ordering::Relaxed)
    }
}
