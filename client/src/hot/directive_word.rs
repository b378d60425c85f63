//! What holds for a key, as the request path reads it: one atomic word, so that it is never torn.

use plimsoll_core::decision::Coin;
use plimsoll_core::quantity::DropRatio;

use crate::hot::sync::{AtomicU64, Ordering};

/// The ratio, the coin, whether there is a guard and whether refusals are carried out: a reader sees all of them of the
/// same directive. The word 0 means that nothing is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    /// No directive of its own: a key then follows its bucket's default class, and that one admits.
    pub(crate) const NOTHING: Self = Self(0);
    const RATIO: u64 = 0xFFFF_FFFF;
    const ENFORCED: u64 = 1 << 32;
    const HELD: u64 = 1 << 33;
    const GUARDED: u64 = 1 << 34;
    const INDEPENDENT: u64 = 1 << 35;
    const COHERENT: u64 = 1 << 36;

    /// A ratio whose refusals are spread evenly, counted and not carried out.
    pub(crate) fn new(ratio: DropRatio) -> Self {
        Self(u64::from(ratio.units()) | Self::HELD)
    }

    /// Refusals are carried out.
    pub(crate) const fn enforced(self, yes: bool) -> Self {
        self.with(Self::ENFORCED, yes)
    }

    /// What the coin lets pass takes a token.
    pub(crate) const fn guarded(self, yes: bool) -> Self {
        self.with(Self::GUARDED, yes)
    }

    /// How the ratio becomes decisions. A request without a trace has nothing that a coherent coin could go by; it gets an
    /// independent one.
    pub(crate) fn coin(self, coin: Coin) -> Self {
        self.with(Self::INDEPENDENT, coin != Coin::Dithered)
    }

    /// Requests with a trace are decided by its draw: only once there is a key to draw by.
    pub(crate) const fn coherent(self, yes: bool) -> Self {
        self.with(Self::COHERENT, yes)
    }

    const fn with(self, flag: u64, yes: bool) -> Self {
        if yes { Self(self.0 | flag) } else { Self(self.0 & !flag) }
    }

    #[inline]
    pub(crate) fn ratio(self) -> DropRatio {
        // Words are only made from ratios; anything else would refuse nothing.
        DropRatio::new(self.0 as u32).unwrap_or(DropRatio::NONE)
    }

    /// Whether every request is admitted without looking any further.
    #[inline]
    pub(crate) const fn admits(self) -> bool {
        self.0 & (Self::RATIO | Self::GUARDED) == 0
    }

    /// Whether an independent coin alone decides, and its refusals are carried out.
    #[inline]
    pub(crate) const fn is_plain(self) -> bool {
        const FLAGS: u64 = Word::ENFORCED | Word::INDEPENDENT | Word::GUARDED;
        self.0 & FLAGS == Word::ENFORCED | Word::INDEPENDENT
    }

    #[inline]
    pub(crate) const fn is_enforced(self) -> bool {
        self.0 & Self::ENFORCED != 0
    }

    #[inline]
    pub(crate) const fn is_guarded(self) -> bool {
        self.0 & Self::GUARDED != 0
    }

    /// Whether the draw of a request's trace decides: not where nothing is refused by chance.
    #[inline]
    pub(crate) const fn goes_by_trace(self) -> bool {
        self.0 & Self::COHERENT != 0 && self.0 & Self::RATIO != 0
    }

    #[inline]
    pub(crate) const fn is_independent(self) -> bool {
        self.0 & Self::INDEPENDENT != 0
    }
}

/// A word that threads share.
#[derive(Debug, Default)]
pub(crate) struct SharedWord(AtomicU64);

impl SharedWord {
    /// The present word. Whoever sees a guard in it also sees the guard's tokens, and whoever sees a coherent coin a key.
    #[inline]
    pub(crate) fn load(&self) -> Word {
        Word(self.0.load(Ordering::Acquire))
    }

    /// Publishes a word.
    pub(crate) fn store(&self, word: Word) {
        self.0.store(word.0, Ordering::Release);
    }
}
