//! What one thread alone writes: how its decisions ended, the states of its coins and the tokens it has taken in
//! advance, by key. Nothing in it is shared on the request path, so nothing waits.

use plimsoll_core::decision::coin::Dither;
use plimsoll_core::report::Counts;

use crate::hot::sync::{AtomicU64, Ordering, zeroed};

/// How a decision ended. The outcomes exclude each other, so that one decision is one addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Admitted,
    /// Refused by the coin.
    Dropped,
    /// Refused by the guard.
    GuardDropped,
    /// Admitted, though the coin would have refused.
    WouldDropped,
    /// Admitted, though the guard would have refused.
    WouldGuardDropped,
}

impl Outcome {
    /// Whether the request is turned away.
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

/// The cells of one seat. They belong to the thread that has it, which reads and then writes them; or they are shared by
/// all that have none, which must go the slower way.
#[derive(Debug)]
pub(crate) struct Slab {
    words: Vec<AtomicU64>,
    /// Where the words that are touched often begin, on a cache line's edge, and after them the others.
    often: usize,
    seldom: usize,
    is_shared: bool,
}

/// Tokens that were taken from a guard's pool in advance, as one word: how many were used in all, how many are left,
/// and since which refill. Whoever finds another refill has none left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batch(u64);

impl Batch {
    /// The most tokens taken at once.
    pub(crate) const LEFT_MAX: u32 = u16::MAX as u32;
    const LEFT: u32 = 16;
    const USED: u32 = 32;

    /// How many are left of those that were taken since refill number `refill`.
    #[inline]
    pub(crate) const fn left(self, refill: u16) -> u32 {
        if self.0 as u16 == refill { (self.0 >> Self::LEFT) as u16 as u32 } else { 0 }
    }

    /// How many were used, modulo 2^32.
    pub(crate) const fn used(self) -> u32 {
        (self.0 >> Self::USED) as u32
    }

    /// After one of those that are left was used, or none.
    #[inline]
    const fn less(self, one: bool) -> Self {
        Self(self.0.wrapping_add((one as u64) * ((1 << Self::USED) - (1 << Self::LEFT))))
    }

    /// After `used` more were used and with `left` left.
    #[inline]
    #[must_use]
    pub(crate) const fn after(self, used: u32, left: u32, refill: u16) -> Self {
        let used = self.used().wrapping_add(used);
        Self((used as u64) << Self::USED | (left as u64 & 0xFFFF) << Self::LEFT | refill as u64)
    }
}

/// The cells of one key that most decisions touch, as their only writer sees them: what it has loaded is still there when
/// it stores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a>(&'a [AtomicU64; OFTEN]);

impl Row<'_> {
    /// Counts a request that the coin alone decided about. Writes to both counts, so that neither a branch nor an address
    /// depends on chance.
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

    /// Takes one token of those taken in advance since refill number `refill`, or none if `one` is false. False when there
    /// is none to be taken.
    #[inline]
    pub(crate) fn take(self, refill: u16, one: bool) -> bool {
        let batch = Batch(self.0[TOKENS].load(Ordering::Relaxed));
        if batch.left(refill) == 0 {
            return !one;
        }
        self.0[TOKENS].store(batch.less(one).0, Ordering::Relaxed);
        true
    }
}

impl Slab {
    /// Cells for `keys` keys, of one thread at a time.
    pub(crate) fn new(keys: usize) -> Self {
        let words = zeroed::<AtomicU64>(keys * (OFTEN + SELDOM) + LINE);
        let often = words.as_ptr().align_offset(64).min(LINE);
        Self { seldom: often + keys * OFTEN, words, often, is_shared: false }
    }

    /// Cells that any thread may write to.
    pub(crate) fn shared(keys: usize) -> Self {
        Self { is_shared: true, ..Self::new(keys) }
    }

    #[inline]
    pub(crate) const fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// The cells of a key that most decisions touch, for the one thread that they belong to; `None` where they are shared.
    #[inline]
    pub(crate) fn row(&self, key: u32) -> Option<Row<'_>> {
        if self.is_shared {
            return None;
        }
        self.words.get(self.often + key as usize * OFTEN..)?.first_chunk().map(Row)
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

    /// Counts `n` requests that ended alike.
    #[inline]
    pub(crate) fn add(&self, key: u32, outcome: Outcome, n: u32) {
        let Some(cell) = self.cell(key, outcome) else { return };
        self.update(cell, |count| count.wrapping_add(u64::from(n)));
    }

    /// Changes a word to what `f` makes of it. Where threads share it, an update of a coin may be made from a state that
    /// another thread has just used, never from half of one.
    #[inline]
    fn update(&self, cell: &AtomicU64, f: impl Fn(u64) -> u64) {
        if self.is_shared {
            let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| Some(f(word)));
        } else {
            // Nobody else writes here, so nothing comes between.
            cell.store(f(cell.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
    }

    /// Runs `f` on the state of a key's coin. Two threads that share it may decide from the same state: each of the two
    /// requests is refused with the ratio's probability all the same, they only fall alike.
    #[inline]
    pub(crate) fn with_coin<R>(&self, key: u32, f: impl FnOnce(&mut Dither) -> R) -> R {
        let Some(word) = self.often(key, COIN) else { return f(&mut Dither::default()) };
        let mut state = Dither::from_bits(word.load(Ordering::Relaxed));
        let result = f(&mut state);
        word.store(state.to_bits(), Ordering::Relaxed);
        result
    }

    /// The tokens that were taken in advance.
    #[inline]
    pub(crate) fn batch(&self, key: u32) -> Batch {
        Batch(self.often(key, TOKENS).map_or(0, |word| word.load(Ordering::Relaxed)))
    }

    /// Keeps the tokens that were taken in advance. Only for the owner.
    #[inline]
    pub(crate) fn set_batch(&self, key: u32, batch: Batch) {
        if let Some(word) = self.often(key, TOKENS) {
            word.store(batch.0, Ordering::Relaxed);
        }
    }

    /// Notes that threads which share these cells used `n` tokens, or, where it is negative, gave them back.
    pub(crate) fn note_used(&self, key: u32, n: i32) {
        if let Some(word) = self.often(key, TOKENS) {
            let n = (i64::from(n) as u64).wrapping_shl(Batch::USED);
            word.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// How often each outcome came about for a key; what was offered is their sum.
    pub(crate) fn counts(&self, key: u32) -> Counts {
        let read = |outcome| self.cell(key, outcome).map_or(0, |cell| cell.load(Ordering::Relaxed));
        let (dropped, guard_dropped) = (read(Outcome::Dropped), read(Outcome::GuardDropped));
        let would_guard_dropped = read(Outcome::WouldGuardDropped);
        let would_dropped = read(Outcome::WouldDropped) + would_guard_dropped;
        let offered = read(Outcome::Admitted) + dropped + guard_dropped + would_dropped;
        Counts { offered, dropped, guard_dropped, would_dropped, would_guard_dropped }
    }
}
