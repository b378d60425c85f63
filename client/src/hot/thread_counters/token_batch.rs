//! The batch of guard tokens that a thread holds for one key, packed into one word of its counters.

/// Tokens that a thread took from a guard's pool in advance: the tokens used in all, the tokens left, and the
/// refill that they belong to. After another refill, none are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenBatch(pub(super) u64);

impl TokenBatch {
    pub(crate) const LEFT_MAX: u32 = u16::MAX as u32;
    /// The position of the tokens used, for a counter that is only added to.
    pub(super) const USED: u32 = 32;
    const LEFT: u32 = 16;

    #[inline]
    pub(crate) const fn left(self, refill: u16) -> u32 {
        if self.0 as u16 == refill {
            (self.0 >> Self::LEFT) as u16 as u32
        } else {
            0
        }
    }

    /// Returns the tokens used, modulo 2^32.
    pub(crate) const fn used(self) -> u32 {
        (self.0 >> Self::USED) as u32
    }

    /// Uses one of the tokens left, or none if `one` is false.
    #[inline]
    pub(super) const fn less(self, one: bool) -> Self {
        Self(
            self.0
                .wrapping_add((one as u64) * ((1 << Self::USED) - (1 << Self::LEFT))),
        )
    }

    /// Returns a batch with `used` more tokens used and `left` tokens of refill number `refill`.
    #[inline]
    #[must_use]
    pub(crate) const fn after(self, used: u32, left: u32, refill: u16) -> Self {
        let used = self.used().wrapping_add(used);
        Self((used as u64) << Self::USED | (left as u64 & 0xFFFF) << Self::LEFT | refill as u64)
    }
}
