//! The fill of a guard's token bucket as one atomic word, without a clock.

use std::time::Duration;

use crate::quantity::Rate;

/// A number of tokens, one per request that may pass: at most 2^32, in units of 2^-32, so that the fractions
/// of many small refills add up.
///
/// Eight bytes, to fit one atomic word. Rate and depth are arguments of each refill: they change with
/// directives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenCount(u64);

impl TokenCount {
    /// No tokens: nothing may pass.
    pub const NONE: Self = Self(0);
    /// The units in one token.
    const ONE: u64 = 1 << 32;

    /// Converts a number of tokens, fractions included. Negative numbers and NaN become 0; above 2^32 becomes
    /// 2^32.
    pub fn new(requests: f64) -> Self {
        // A cast from a float saturates and turns NaN into zero.
        Self((requests * Self::ONE as f64) as u64)
    }

    /// The tokens as a number.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / Self::ONE as f64
    }

    /// The tokens as one word; 0 for none.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Restores the tokens of [`to_bits`](Self::to_bits); every word is a valid number of tokens.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the rest after one token is taken; `None` if there is no whole token.
    #[inline]
    pub const fn take(self) -> Option<Self> {
        match self.0.checked_sub(Self::ONE) {
            Some(left) => Some(Self(left)),
            None => None,
        }
    }

    /// The number of whole tokens.
    pub const fn whole(self) -> u64 {
        self.0 / Self::ONE
    }

    /// Returns the rest after `debt` requests are paid, as far as whole tokens last.
    pub fn pay(self, debt: &mut u64) -> Self {
        let paid = self.whole().min(*debt);
        *debt -= paid;
        Self(self.0 - paid * Self::ONE)
    }

    /// Returns the sum with other tokens.
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the tokens above a depth.
    pub const fn above(self, depth: Self) -> Self {
        Self(self.0.saturating_sub(depth.0))
    }

    /// Returns the tokens after `elapsed` at `rate`: `min(depth, tokens + rate * elapsed)`. Also cuts to a
    /// depth that has become smaller.
    pub fn refilled(self, rate: Rate, elapsed: Duration, depth: Self) -> Self {
        let fresh = Self::new(rate.per_second() * elapsed.as_secs_f64());
        Self(self.0.saturating_add(fresh.0)).min(depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK: Duration = Duration::from_millis(10);

    fn rate(per_second: f64) -> Rate {
        Rate::new(per_second).unwrap()
    }

    #[test]
    fn a_take_needs_a_whole_token() {
        assert_eq!(TokenCount::NONE.take(), None);
        assert_eq!(TokenCount::new(0.999).take(), None);
        assert_eq!(TokenCount::new(1.0).take(), Some(TokenCount::NONE));
        assert_eq!(TokenCount::new(3.25).take(), Some(TokenCount::new(2.25)));
    }

    #[test]
    fn invalid_token_inputs_become_valid() {
        for (requests, expected) in [
            (f64::NAN, 0.0),
            (-1.0, 0.0),
            (f64::INFINITY, 2_f64.powi(32)),
        ] {
            assert_eq!(TokenCount::new(requests).as_f64(), expected, "{requests}");
        }
        let full =
            TokenCount::new(f64::MAX).refilled(Rate::MAX, Duration::MAX, TokenCount::new(f64::MAX));
        assert_eq!(full, TokenCount::new(f64::INFINITY));
    }

    #[test]
    fn only_a_smaller_depth_changes_tokens() {
        let full = TokenCount::new(10.0);
        assert_eq!(
            full.refilled(rate(5.0), Duration::ZERO, TokenCount::new(4.0)),
            TokenCount::new(4.0)
        );
        assert_eq!(
            full.refilled(rate(5.0), Duration::ZERO, TokenCount::new(40.0)),
            full
        );
        assert_eq!(
            full.refilled(rate(5.0), TICK, TokenCount::NONE),
            TokenCount::NONE
        );
    }

    proptest! {
        #[test]
        fn small_refills_equal_one_large_refill(per_second in 0.001..1e6_f64, ticks in 1..2_000u32) {
            let depth = TokenCount::new(1e9);
            let small = (0..ticks).fold(TokenCount::NONE, |held, _| held.refilled(rate(per_second), TICK, depth));
            let large = TokenCount::NONE.refilled(rate(per_second), TICK * ticks, depth);
            // Each refill is cut to a whole unit, never rounded up.
            prop_assert!((small.as_f64() - large.as_f64()).abs() <= f64::from(ticks) * 2e-9 * (1.0 + large.as_f64() * 1e-6));
        }

        #[test]
        fn depth_and_arrivals_bound_what_passes(
            per_second in 0.0..1e4_f64, depth in 0.0..100.0_f64, asked in prop::collection::vec(0..200_usize, 1..100),
        ) {
            let depth = TokenCount::new(depth);
            let (mut tokens, mut passed) = (depth, 0.0);
            for (ticks, asked) in (1..).zip(asked) {
                for _ in 0..asked {
                    if let Some(left) = tokens.take() {
                        tokens = left;
                        passed += 1.0;
                    }
                }
                tokens = tokens.refilled(rate(per_second), TICK, depth);
                prop_assert!(tokens <= depth);
                let bound = depth.as_f64() + per_second * TICK.as_secs_f64() * f64::from(ticks);
                prop_assert!(passed <= bound + 1e-6, "{passed} passed, {bound} allowed");
            }
        }
    }
}
