//! The directives a service holds, as the request path reads them: one word for each key, never torn.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use plimsoll_core::bucket::{DEFAULT_TENANT, InvalidName, check_name};
use plimsoll_core::coin;
use plimsoll_core::ratio::DropRatio;
use plimsoll_core::verdict::{Reason, Refusal, Verdict};

use crate::counters::{Counters, Outcome};
use crate::draws::Draws;
use crate::names::{Found, Names};

/// The most buckets one limiter knows; no more than keys in any case.
pub(crate) const BUCKETS_MAX: usize = 1_024;

/// Ratio, and whether refusals are carried out, in one atomic word: a reader sees both of the same directive.
/// The word 0 means that nothing is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    /// No directive: a key then follows its bucket, a bucket admits.
    pub(crate) const NOTHING: Self = Self(0);
    const ENFORCED: u64 = 1 << 32;
    const HELD: u64 = 1 << 33;

    pub(crate) fn new(ratio: DropRatio, enforced: bool) -> Self {
        Self(u64::from(ratio.units()) | Self::HELD | if enforced { Self::ENFORCED } else { 0 })
    }

    fn ratio(self) -> DropRatio {
        // Words are only made from ratios; anything else would refuse nothing.
        DropRatio::new(self.0 as u32).unwrap_or(DropRatio::NONE)
    }

    const fn enforced(self) -> bool {
        self.0 & Self::ENFORCED != 0
    }
}

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
    pub(crate) bucket: u32,
    pub(crate) key: u32,
}

/// All buckets and keys of one limiter: names, words and counters. Everything is allocated at the start.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) buckets: Names,
    pub(crate) keys: Names,
    bucket_words: Box<[AtomicU64]>,
    /// The default key of each bucket plus one; 0 until it is given.
    default_keys: Box<[AtomicU32]>,
    key_words: Box<[AtomicU64]>,
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
            bucket_words: (0..buckets_max).map(|_| AtomicU64::new(0)).collect(),
            default_keys: (0..buckets_max).map(|_| AtomicU32::new(0)).collect(),
            key_words: (0..keys_max).map(|_| AtomicU64::new(0)).collect(),
            counters: Counters::new(keys_max),
            unplaced: AtomicU64::new(0),
        }
    }

    /// The place of a bucket, off the request path. `None` when the table is full.
    pub(crate) fn declare(&self, bucket: &str) -> Result<Option<BucketPlace>, InvalidName> {
        check_name(bucket)?;
        let Some(id) = self.buckets.intern_patiently(0, bucket) else { return Ok(None) };
        let Some(default_key) = self.keys.intern_patiently(id, DEFAULT_TENANT) else { return Ok(None) };
        Ok(self.remember_default(id, default_key))
    }

    /// The place of a bucket, on the request path.
    fn bucket(&self, bucket: &str) -> Option<BucketPlace> {
        check_name(bucket).ok()?;
        let Found::Id(id) = self.buckets.intern(0, bucket) else { return None };
        match self.default_keys.get(id as usize)?.load(Ordering::Acquire) {
            0 => match self.keys.intern(id, DEFAULT_TENANT) {
                Found::Id(default_key) => self.remember_default(id, default_key),
                Found::Busy | Found::Full => None,
            },
            known => Some(BucketPlace { bucket: id, default_key: known - 1 }),
        }
    }

    fn remember_default(&self, bucket: u32, default_key: u32) -> Option<BucketPlace> {
        self.default_keys.get(bucket as usize)?.store(default_key + 1, Ordering::Release);
        Some(BucketPlace { bucket, default_key })
    }

    /// The place of a tenant's key: its own, or the default class where there is no room or the name is invalid.
    #[inline]
    pub(crate) fn key(&self, place: BucketPlace, tenant: &str) -> KeyPlace {
        let own = match check_name(tenant) {
            Ok(()) => self.keys.intern(place.bucket, tenant),
            Err(_) => Found::Full,
        };
        let key = match own {
            Found::Id(key) => key,
            Found::Busy | Found::Full => place.default_key,
        };
        KeyPlace { bucket: place.bucket, key }
    }

    /// Decides by names.
    pub(crate) fn admit(&self, bucket: &str, tenant: &str, draws: &mut impl Draws) -> Verdict {
        match self.bucket(bucket) {
            Some(place) => self.decide(self.key(place, tenant), draws),
            None => {
                self.unplaced.fetch_add(1, Ordering::Relaxed);
                Verdict::Admit
            }
        }
    }

    /// Decides and counts. Never blocks, allocates, makes a system call or fails.
    #[inline]
    pub(crate) fn decide(&self, place: KeyPlace, draws: &mut impl Draws) -> Verdict {
        let word = self.word(place);
        let ratio = word.ratio();
        if ratio == DropRatio::NONE || !coin::refuses(ratio, draws.draw()) {
            self.counters.add(place.key, Outcome::Admitted);
            return Verdict::Admit;
        }
        if !word.enforced() {
            self.counters.add(place.key, Outcome::WouldDropped);
            return Verdict::Admit;
        }
        self.counters.add(place.key, Outcome::Dropped);
        Verdict::Refuse(Refusal { reason: Reason::ClusterOverload, retry_after: draws.retry_after() })
    }

    /// What holds for a key: its own word, or its bucket's.
    #[inline]
    fn word(&self, place: KeyPlace) -> Word {
        let load = |words: &[AtomicU64], at: u32| {
            words.get(at as usize).map_or(Word::NOTHING, |word| Word(word.load(Ordering::Relaxed)))
        };
        match load(&self.key_words, place.key) {
            Word::NOTHING => load(&self.bucket_words, place.bucket),
            own => own,
        }
    }

    /// Publishes what holds for every key of a bucket that has no word of its own.
    pub(crate) fn set_bucket(&self, bucket: u32, word: Word) {
        if let Some(cell) = self.bucket_words.get(bucket as usize) {
            cell.store(word.0, Ordering::Relaxed);
        }
    }

    /// Publishes what holds for one key.
    pub(crate) fn set_key(&self, key: u32, word: Word) {
        if let Some(cell) = self.key_words.get(key as usize) {
            cell.store(word.0, Ordering::Relaxed);
        }
    }

    /// Requests admitted without a count of their own.
    pub(crate) fn unplaced(&self) -> u64 {
        self.unplaced.load(Ordering::Relaxed)
    }
}
