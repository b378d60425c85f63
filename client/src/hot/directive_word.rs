//! A key's directive as the request path reads it: one atomic word, so that a reader never sees a torn
//! directive.

use plimsoll_core::decision::Coin;
use plimsoll_core::quantity::DropRatio;

use crate::hot::sync::{AtomicU64, Ordering};

/// The drop ratio, the coin, and flags for a guard and for enforcement, packed so that a reader sees all of
/// them of one directive. The word 0 means that the key has no directive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DirectiveWord(u64);

impl DirectiveWord {
    /// No directive: the key then follows its bucket's default class, and a default class without directive
    /// admits.
    pub(crate) const NOTHING: Self = Self(0);
    const RATIO: u64 = 0xFFFF_FFFF;
    const ENFORCED: u64 = 1 << 32;
    const HELD: u64 = 1 << 33;
    const GUARDED: u64 = 1 << 34;
    const INDEPENDENT: u64 = 1 << 35;
    const COHERENT: u64 = 1 << 36;

    /// Makes the directive of a ratio with a dithered coin, in shadow mode.
    pub(crate) fn new(ratio: DropRatio) -> Self {
        Self(u64::from(ratio.units()) | Self::HELD)
    }

    /// Enforces refusals, or only counts them.
    pub(crate) const fn enforced(self, yes: bool) -> Self {
        self.with(Self::ENFORCED, yes)
    }

    /// Adds or removes a guard, of which each request that the coin admits takes a token.
    pub(crate) const fn guarded(self, yes: bool) -> Self {
        self.with(Self::GUARDED, yes)
    }

    /// Sets the coin. A coherent coin counts as independent here, for requests without a trace.
    pub(crate) fn coin(self, coin: Coin) -> Self {
        self.with(Self::INDEPENDENT, coin != Coin::Dithered)
    }

    /// Decides requests with a trace by the trace's draw, or not. A draw key must be stored first.
    pub(crate) const fn coherent(self, yes: bool) -> Self {
        self.with(Self::COHERENT, yes)
    }

    const fn with(self, flag: u64, yes: bool) -> Self {
        if yes { Self(self.0 | flag) } else { Self(self.0 & !flag) }
    }

    #[inline]
    pub(crate) fn ratio(self) -> DropRatio {
        // Words are made from ratios only, so that there is always one to return.
        DropRatio::new(self.0 as u32).unwrap_or(DropRatio::NONE)
    }

    /// True if every request is admitted without a draw.
    #[inline]
    pub(crate) const fn admits(self) -> bool {
        self.0 & (Self::RATIO | Self::GUARDED) == 0
    }

    /// True if an independent coin alone decides, and its refusals are enforced.
    #[inline]
    pub(crate) const fn is_plain(self) -> bool {
        const FLAGS: u64 = DirectiveWord::ENFORCED | DirectiveWord::INDEPENDENT | DirectiveWord::GUARDED;
        self.0 & FLAGS == DirectiveWord::ENFORCED | DirectiveWord::INDEPENDENT
    }

    #[inline]
    pub(crate) const fn is_enforced(self) -> bool {
        self.0 & Self::ENFORCED != 0
    }

    #[inline]
    pub(crate) const fn is_guarded(self) -> bool {
        self.0 & Self::GUARDED != 0
    }

    /// True if a trace's draw decides, which a ratio of zero does not need.
    #[inline]
    pub(crate) const fn uses_trace(self) -> bool {
        self.0 & Self::COHERENT != 0 && self.0 & Self::RATIO != 0
    }

    #[inline]
    pub(crate) const fn is_independent(self) -> bool {
        self.0 & Self::INDEPENDENT != 0
    }
}

/// A directive word that threads share.
#[derive(Debug, Default)]
pub(crate) struct AtomicDirectiveWord(AtomicU64);

impl AtomicDirectiveWord {
    /// Loads the word. A reader that sees a guard also sees the guard's tokens; one that sees a coherent
    /// coin, a draw key.
    #[inline]
    pub(crate) fn load(&self) -> DirectiveWord {
        DirectiveWord(self.0.load(Ordering::Acquire))
    }

    /// Publishes a word.
    pub(crate) fn store(&self, word: DirectiveWord) {
        self.0.store(word.0, Ordering::Release);
    }
}
