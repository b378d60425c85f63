//! The weight of a tenant in weighted max-min fairness.

use crate::quantity::OutOfRange;

/// A tenant's share relative to the others: in [`Weight::MIN`]..=[`Weight::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Weight(f64);

// Never NaN.
impl Eq for Weight {}

// === impl Weight ===

impl Weight {
    /// The default weight.
    pub const ONE: Self = Self(1.0);
    /// The smallest weight.
    pub const MIN: f64 = 1e-6;
    /// The largest weight.
    pub const MAX: f64 = 1e6;

    /// Validates a weight.
    ///
    /// # Errors
    /// Outside [`Weight::MIN`]..=[`Weight::MAX`], or not a number.
    pub fn new(weight: f64) -> Result<Self, OutOfRange> {
        if (Self::MIN..=Self::MAX).contains(&weight) {
            Ok(Self(weight))
        } else {
            Err(OutOfRange {
                range: "a weight lies in 0.000001..=1000000",
                got: weight,
            })
        }
    }

    /// The weight as a number.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// Returns this weight times a factor, clamped to the range of weights. NaN changes nothing.
    pub fn times(self, factor: f64) -> Self {
        if factor.is_nan() {
            self
        } else {
            Self((self.0 * factor).clamp(Self::MIN, Self::MAX))
        }
    }
}
