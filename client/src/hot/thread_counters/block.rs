//! The counters of each thread, by key: outcomes of decisions, coin states and token batches. Only one thread
//! writes to a block, so that threads do not contend; threads without a slot share one block, and a shard has one of its own.

use plimsoll_core::decision::coin::Dither;
use plimsoll_core::report::Counts;

use super::token_batch::TokenBatch;
use crate::hot::sync::{self, AtomicU64, Ordering, zeroed};

/// The outcome of a decision. Outcomes are disjoint, so that a decision increments one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Admitted,
    Dropped,
    GuardDropped,
    WouldDropped,
    WouldGuardDropped,
}

impl Outcome {
    #[inline]
    pub(crate) const fn is_refusal(self) -> bool {
        matches!(self, Self::Dropped | Self::GuardDropped)
    }
}

/// The counters that most decisions write to: requests admitted, and requests refused by the coin.
type OftenCounters = [AtomicU64; 2];
/// The state of a key's coin, and its token batch.
type StateWords = [AtomicU64; 2];
/// Requests refused by the guard, and those that coin and guard would have refused.
type SeldomCounters = [AtomicU64; 3];

/// The counters of one or more threads, a block for each.
///
/// The counters that most decisions write to take 16 bytes a key, so that four keys share a cache
/// line. Coins and tokens are apart, because most tenants use the state of their bucket's default
/// class.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Counters {
    /// The number of ids in each block: those of keys, then those of the headrooms of buckets.
    pub(super) keys: usize,
    /// By block, then by key.
    often: Vec<OftenCounters>,
    states: Vec<StateWords>,
    seldom: Vec<SeldomCounters>,
}

/// The counters of one slot. Either one thread owns them and updates them with a load and a store, or all
/// threads without a slot share them and need read-modify-write operations.
#[derive(Clone, Copy)]
pub(crate) struct CounterBlock<'a> {
    counters: &'a Counters,
    first: usize,
    pub(crate) is_shared: bool,
}

/// The often touched counters of one key, for the thread that owns them: no other thread writes between its
/// loads and stores.
#[derive(Clone, Copy)]
pub(crate) struct CounterRow<'a>(&'a OftenCounters);

#[derive(Clone, Copy)]
pub(crate) struct KeyState<'a>(&'a StateWords);

impl CounterRow<'_> {
    /// Counts a request that was admitted, or that the coin refused. Writes to both counters, so that no branch
    /// and no address depends on the draw.
    #[inline]
    pub(crate) fn count(self, refused: bool) {
        let [admitted, dropped] = self.0;
        for (cell, n) in [(admitted, !refused), (dropped, refused)] {
            sync::add(cell, n.into(), false);
        }
    }
}

impl KeyState<'_> {
    #[inline]
    pub(crate) fn with_coin<R>(self, f: impl FnOnce(&mut Dither) -> R) -> R {
        let [coin, _] = self.0;
        let mut state = Dither::from_bits(coin.load(Ordering::Relaxed));
        let result = f(&mut state);
        coin.store(state.to_bits(), Ordering::Relaxed);
        result
    }

    /// Takes a token of the batch of refill number `refill` if one is needed. Returns false if it is and none is left.
    /// Writes in either case while tokens are left, so that no branch depends on the draw of the coin.
    #[inline]
    pub(crate) fn take(self, refill: u16, is_needed: bool) -> bool {
        let [_, tokens] = self.0;
        let batch = TokenBatch(tokens.load(Ordering::Relaxed));
        if batch.left(refill) == 0 {
            return !is_needed;
        }
        tokens.store(batch.less(is_needed).0, Ordering::Relaxed);
        true
    }
}

impl Counters {
    pub(crate) fn new(keys: usize, blocks: usize) -> Self {
        let rows = keys * blocks;
        Self {
            keys,
            often: zeroed(rows),
            states: zeroed(rows),
            seldom: zeroed(rows),
        }
    }

    /// Returns the block of a slot. Only the thread that owns the slot may write to it.
    #[inline]
    pub(crate) const fn block(&self, slot: usize) -> CounterBlock<'_> {
        CounterBlock {
            counters: self,
            first: slot * self.keys,
            is_shared: false,
        }
    }

    /// Returns the only block of counters that threads without a slot share.
    #[inline]
    pub(crate) const fn shared_block(&self) -> CounterBlock<'_> {
        CounterBlock {
            counters: self,
            first: 0,
            is_shared: true,
        }
    }
}

impl<'a> CounterBlock<'a> {
    /// Returns the place of a key. Every id is below the number of keys.
    #[inline]
    fn place(self, key: u32) -> usize {
        debug_assert!(
            (key as usize) < self.counters.keys,
            "key {key} has no counters"
        );
        self.first + key as usize
    }

    /// Returns the often touched counters of a key to the thread that owns them; `None` if they are shared.
    #[inline]
    pub(crate) fn row(self, key: u32) -> Option<CounterRow<'a>> {
        if self.is_shared {
            None
        } else {
            self.counters.often.get(self.place(key)).map(CounterRow)
        }
    }

    /// Returns the coin and the tokens of a key to the thread that owns them; `None` if they are shared.
    #[inline]
    pub(crate) fn state(self, key: u32) -> Option<KeyState<'a>> {
        if self.is_shared {
            None
        } else {
            self.counters.states.get(self.place(key)).map(KeyState)
        }
    }

    #[inline]
    fn cell(self, key: u32, outcome: Outcome) -> Option<&'a AtomicU64> {
        let Counters { often, seldom, .. } = self.counters;
        let place = self.place(key);
        match outcome {
            Outcome::Admitted => often.get(place).map(|[admitted, _]| admitted),
            Outcome::Dropped => often.get(place).map(|[_, dropped]| dropped),
            Outcome::GuardDropped => seldom.get(place).map(|[cell, ..]| cell),
            Outcome::WouldDropped => seldom.get(place).map(|[_, cell, _]| cell),
            Outcome::WouldGuardDropped => seldom.get(place).map(|[.., cell]| cell),
        }
    }

    #[inline]
    fn tokens(self, key: u32) -> Option<&'a AtomicU64> {
        self.counters
            .states
            .get(self.place(key))
            .map(|[_, tokens]| tokens)
    }

    #[inline]
    pub(crate) fn add(self, key: u32, outcome: Outcome, n: u32) {
        if let Some(cell) = self.cell(key, outcome) {
            sync::add(cell, n.into(), self.is_shared);
        }
    }

    /// Runs `f` on the state of a key's coin. Two threads that share it may decide from one state: each
    /// request is still refused with the ratio's probability, but the two decisions are correlated.
    #[inline]
    pub(crate) fn with_coin<R>(self, key: u32, f: impl FnOnce(&mut Dither) -> R) -> R {
        match self.counters.states.get(self.place(key)) {
            Some(state) => KeyState(state).with_coin(f),
            None => f(&mut Dither::default()),
        }
    }

    #[inline]
    pub(crate) fn batch(self, key: u32) -> TokenBatch {
        TokenBatch(
            self.tokens(key)
                .map_or(0, |word| word.load(Ordering::Relaxed)),
        )
    }

    /// Stores the token batch of a key. Only for the thread that owns the counters.
    #[inline]
    pub(crate) fn set_batch(self, key: u32, batch: TokenBatch) {
        if let Some(word) = self.tokens(key) {
            word.store(batch.0, Ordering::Relaxed);
        }
    }

    /// Adds `n` tokens to those used by the threads that share these counters; a negative number returns
    /// tokens.
    pub(crate) fn note_used(self, key: u32, n: i32) {
        if let Some(word) = self.tokens(key) {
            let n = (i64::from(n) as u64).wrapping_shl(TokenBatch::USED);
            word.fetch_add(n, Ordering::Relaxed);
        }
    }

    pub(crate) fn counts(self, key: u32) -> Counts {
        let read = |outcome| {
            self.cell(key, outcome)
                .map_or(0, |cell| cell.load(Ordering::Relaxed))
        };
        let (dropped, guard_dropped) = (read(Outcome::Dropped), read(Outcome::GuardDropped));
        let would_guard_dropped = read(Outcome::WouldGuardDropped);
        let would_dropped = read(Outcome::WouldDropped) + would_guard_dropped;
        let offered = read(Outcome::Admitted) + dropped + guard_dropped + would_dropped;
        Counts {
            offered,
            dropped,
            guard_dropped,
            would_dropped,
            would_guard_dropped,
            ..Counts::ZERO
        }
    }
}
