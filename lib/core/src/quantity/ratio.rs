//! The drop ratio: the probability of refusal, a fixed-point number that cannot leave 0..=1.

use std::fmt;

use super::{OutOfRange, Rate};

/// The probability of refusal, in units of 2^-31: 0 admits all, 2^31 refuses all, larger values cannot be
/// built.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DropRatio(u32);

impl DropRatio {
    /// Refuse nothing.
    pub const NONE: Self = Self(0);
    /// Refuse everything.
    pub const ALL: Self = Self(Self::ONE);
    /// The number of units in a ratio of 1.
    pub const ONE: u32 = 1 << 31;

    /// Validates a ratio in units of 2^-31, as it travels.
    ///
    /// # Errors
    /// When it is above 2^31.
    #[inline]
    pub const fn new(units: u32) -> Result<Self, OutOfRange> {
        if units <= Self::ONE {
            Ok(Self(units))
        } else {
            Err(OutOfRange {
                range: "a drop ratio is at most 2^31 (which means 1)",
                got: units as f64,
            })
        }
    }

    /// Makes a ratio of units of 2^-31; more than 2^31 count as a ratio of 1.
    #[inline]
    pub fn saturating(units: u32) -> Self {
        Self(units.min(Self::ONE))
    }

    /// The ratio in units of 2^-31.
    #[inline]
    pub const fn units(self) -> u32 {
        self.0
    }

    /// The ratio as a number in 0..=1.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ONE)
    }

    /// Returns `(offered - allowed) / offered`, or 0 where no more is offered than allowed (0 of 0 included).
    ///
    /// Rounded to the nearest unit; an excess too small for one unit refuses nothing.
    pub fn of_excess(offered: Rate, allowed: Rate) -> Self {
        if offered <= allowed {
            return Self::NONE;
        }
        let ratio = 1.0 - allowed.per_second() / offered.per_second();
        // offered > allowed >= 0, so the ratio lies in 0..=1 and the cast keeps it.
        Self((ratio * f64::from(Self::ONE)).round() as u32)
    }
}

impl fmt::Debug for DropRatio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4}", self.as_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ratio_is_the_excess_over_allowance() {
        let rate = |r| Rate::new(r).unwrap();
        for (offered, allowed, ratio) in [
            (0.0, 0.0, 0.0),
            (10.0, 0.0, 1.0),
            (1000.0, 1000.0, 0.0),
            (999.0, 1000.0, 0.0),
            (4000.0, 1000.0, 0.75),
            (1e12, 1.0, 1.0),
            (f64::MIN_POSITIVE, 0.0, 1.0),
        ] {
            let got = DropRatio::of_excess(rate(offered), rate(allowed)).as_f64();
            assert!(
                (got - ratio).abs() < 1e-9,
                "{offered} over {allowed}: {got}, not {ratio}"
            );
        }
    }

    #[test]
    fn units_above_one_are_refused() {
        assert_eq!(DropRatio::new(1 << 31).unwrap(), DropRatio::ALL);
        assert!(DropRatio::new((1 << 31) + 1).is_err());
        assert!(DropRatio::new(u32::MAX).is_err());
    }

    proptest! {
        #[test]
        fn no_rates_lead_outside_0_to_1(offered in 0.0..1e12, allowed in 0.0..1e12) {
            let ratio = DropRatio::of_excess(Rate::new(offered).unwrap(), Rate::new(allowed).unwrap());
            prop_assert!(DropRatio::new(ratio.units()).is_ok());
            prop_assert_eq!(ratio == DropRatio::NONE || offered > allowed, true);
        }
    }
}
