//! The counters of one thread, by key: outcomes of decisions, coin states and token batches. Only their
//! thread writes them, so that the request path never contends.

use plimsoll_core::decision::coin::Dither;
use plimsoll_core::report::Counts;

use super::token_batch::TokenBatch;
use crate::hot::sync::{AtomicU64, Ordering, zeroed};

/// The outcome of a decision. Outcomes are disjoint, so that a decision increments one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Admitted,
    /// Refused by the coin.
    Dropped,
    /// Refused by the guard.
    GuardDropped,
    /// Admitted, because the coin's refusal is not enforced.
    WouldDropped,
    /// Admitted, because the guard's refusal is not enforced.
    WouldGuardDropped,
}

impl Outcome {
    /// True if the request is refused.
    #[inline]
    pub(crate) const fn is_refusal(self) -> bool {
        matches!(self, Self::Dropped | Self::GuardDropped)
    }
}

/// Words of a key that most decisions touch: half a cache line.
const OFTEN: usize = 4;
const ADMITTED: usize = 0;
const DROPPED: usize = 1;
const COIN: usize = 2;
const TOKENS: usize = 3;
/// Words of a key that few decisions touch.
const SELDOM: usize = 3;
/// A cache line, in words.
const LINE: usize = 64 / size_of::<AtomicU64>();

/// The counters of one slot. Either one thread owns them and updates them with a load and a store, or all
/// threads without a slot share them and need read-modify-write operations.
#[derive(Debug)]
pub(crate) struct CounterBlock {
    words: Vec<AtomicU64>,
    /// The start of the often touched words, on the edge of a cache line; the others follow.
    often: usize,
    seldom: usize,
    is_shared: bool,
}

/// The often touched counters of one key, for the thread that owns them: no other thread writes between its
/// loads and stores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterRow<'a>(&'a [AtomicU64; OFTEN]);

impl CounterRow<'_> {
    /// Counts a request that the coin alone decided. Writes to both counters, so that no branch and no
    /// address depends on the draw.
    #[inline]
    pub(crate) fn count(self, refused: bool) {
        for (cell, n) in [(&self.0[ADMITTED], !refused), (&self.0[DROPPED], refused)] {
            cell.store(cell.load(Ordering::Relaxed).wrapping_add(u64::from(n)), Ordering::Relaxed);
        }
    }

    /// Runs `f` on the state of the key's coin.
    #[inline]
    pub(crate) fn with_coin<R>(self, f: impl FnOnce(&mut Dither) -> R) -> R {
        let mut state = Dither::from_bits(self.0[COIN].load(Ordering::Relaxed));
        let result = f(&mut state);
        self.0[COIN].store(state.to_bits(), Ordering::Relaxed);
        result
    }

    /// Takes a token of the batch of refill number `refill`, or none if `one` is false. Returns false if a
    /// token was needed and none is left.
    #[inline]
    pub(crate) fn take(self, refill: u16, one: bool) -> bool {
        let batch = TokenBatch::from_bits(self.0[TOKENS].load(Ordering::Relaxed));
        if batch.left(refill) == 0 {
            return !one;
        }
        self.0[TOKENS].store(batch.less(one).to_bits(), Ordering::Relaxed);
        true
    }
}

impl CounterBlock {
    /// Makes counters for `keys` keys, owned by one thread at a time.
    pub(crate) fn new(keys: usize) -> Self {
        let words = zeroed::<AtomicU64>(keys * (OFTEN + SELDOM) + LINE);
        let often = words.as_ptr().align_offset(64).min(LINE);
        Self { seldom: often + keys * OFTEN, words, often, is_shared: false }
    }

    /// Makes counters for `keys` keys that any thread may write to.
    pub(crate) fn shared(keys: usize) -> Self {
        Self { is_shared: true, ..Self::new(keys) }
    }

    #[inline]
    pub(crate) const fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Returns the often touched counters of a key to the thread that owns them; `None` if they are shared.
    #[inline]
    pub(crate) fn row(&self, key: u32) -> Option<CounterRow<'_>> {
        if self.is_shared {
            return None;
        }
        self.words.get(self.often + key as usize * OFTEN..)?.first_chunk().map(CounterRow)
    }

    #[inline]
    fn often(&self, key: u32, word: usize) -> Option<&AtomicU64> {
        self.words.get(self.often + key as usize * OFTEN + word)
    }

    #[inline]
    fn cell(&self, key: u32, outcome: Outcome) -> Option<&AtomicU64> {
        let seldom = |word| self.words.get(self.seldom + key as usize * SELDOM + word);
        match outcome {
            Outcome::Admitted => self.often(key, ADMITTED),
            Outcome::Dropped => self.often(key, DROPPED),
            Outcome::GuardDropped => seldom(0),
            Outcome::WouldDropped => seldom(1),
            Outcome::WouldGuardDropped => seldom(2),
        }
    }

    /// Counts `n` requests with the same outcome.
    #[inline]
    pub(crate) fn add(&self, key: u32, outcome: Outcome, n: u32) {
        let Some(cell) = self.cell(key, outcome) else { return };
        self.update(cell, |count| count.wrapping_add(u64::from(n)));
    }

    /// Replaces a word by `f` of it, atomically if the counters are shared.
    #[inline]
    fn update(&self, cell: &AtomicU64, f: impl Fn(u64) -> u64) {
        if self.is_shared {
            let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| Some(f(word)));
        } else {
            // This thread is the only writer.
            cell.store(f(cell.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
    }

    /// Runs `f` on the state of a key's coin. Two threads that share it may decide from one state: each
    /// request is still refused with the ratio's probability, but the two decisions are correlated.
    #[inline]
    pub(crate) fn with_coin<R>(&self, key: u32, f: impl FnOnce(&mut Dither) -> R) -> R {
        let Some(word) = self.often(key, COIN) else { return f(&mut Dither::default()) };
        let mut state = Dither::from_bits(word.load(Ordering::Relaxed));
        let result = f(&mut state);
        word.store(state.to_bits(), Ordering::Relaxed);
        result
    }

    /// Returns the token batch of a key.
    #[inline]
    pub(crate) fn batch(&self, key: u32) -> TokenBatch {
        TokenBatch::from_bits(self.often(key, TOKENS).map_or(0, |word| word.load(Ordering::Relaxed)))
    }

    /// Stores the token batch of a key. Only for the thread that owns the counters.
    #[inline]
    pub(crate) fn set_batch(&self, key: u32, batch: TokenBatch) {
        if let Some(word) = self.often(key, TOKENS) {
            word.store(batch.to_bits(), Ordering::Relaxed);
        }
    }

    /// Adds `n` tokens to those used by the threads that share these counters; a negative number returns
    /// tokens.
    pub(crate) fn note_used(&self, key: u32, n: i32) {
        if let Some(word) = self.often(key, TOKENS) {
            let n = (i64::from(n) as u64).wrapping_shl(TokenBatch::USED);
            word.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// Returns the counts of a key. Its offered requests are the sum of all outcomes.
    pub(crate) fn counts(&self, key: u32) -> Counts {
        let read = |outcome| self.cell(key, outcome).map_or(0, |cell| cell.load(Ordering::Relaxed));
        let (dropped, guard_dropped) = (read(Outcome::Dropped), read(Outcome::GuardDropped));
        let would_guard_dropped = read(Outcome::WouldGuardDropped);
        let would_dropped = read(Outcome::WouldDropped) + would_guard_dropped;
        let offered = read(Outcome::Admitted) + dropped + guard_dropped + would_dropped;
        Counts { offered, dropped, guard_dropped, would_dropped, would_guard_dropped }
    }
}
