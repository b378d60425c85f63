//! The biased coin: a pure function of the drop ratio and a draw.

use crate::ratio::DropRatio;

/// Whether a request is to be refused: true with probability `ratio` over uniform draws.
///
/// A ratio of 1 refuses every draw and a ratio of 0 none, exactly: the draw is reduced to 31 bits, one fewer than a
/// ratio of 1 takes, so no draw slips through.
#[inline]
#[must_use]
pub const fn refuses(ratio: DropRatio, draw: u32) -> bool {
    draw >> 1 < ratio.units()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ends_are_exact() {
        for draw in [0, 1, 2, u32::MAX / 2, u32::MAX - 1, u32::MAX] {
            assert!(!refuses(DropRatio::NONE, draw));
            assert!(refuses(DropRatio::ALL, draw));
        }
    }

    #[test]
    fn evenly_spaced_draws_are_refused_at_the_ratio() {
        for tenths in 0..=10u32 {
            let ratio = DropRatio::new(DropRatio::ONE / 10 * tenths).unwrap();
            let draws = 1 << 20;
            let refused = (0..draws).filter(|i| refuses(ratio, i << 12)).count();
            let share = refused as f64 / f64::from(draws);
            assert!((share - ratio.as_f64()).abs() < 1e-4, "{ratio:?}: {share}");
        }
    }

    proptest! {
        #[test]
        fn a_larger_ratio_refuses_whatever_a_smaller_one_does(
            a in 0..=DropRatio::ONE, b in 0..=DropRatio::ONE, draw: u32,
        ) {
            let (small, large) = (a.min(b), a.max(b));
            prop_assert!(
                !refuses(DropRatio::new(small).unwrap(), draw) || refuses(DropRatio::new(large).unwrap(), draw)
            );
        }
    }
}
