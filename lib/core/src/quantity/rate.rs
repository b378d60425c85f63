//! Rates and limits in requests per second: never negative and never above [`Rate::MAX`], by construction.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::ops::Add;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Requests per second: from zero to [`Rate::MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Rate(f64);

/// A number that cannot be a rate.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a rate is a number of requests/s from 0 to 1000000000000, not {0}")]
pub struct InvalidRate(f64);

impl Rate {
    /// No requests.
    pub const ZERO: Self = Self(0.0);

    /// The highest rate, beyond any fleet: in thousandths it still fits the wire exactly.
    pub const MAX: Self = Self(1e12);

    /// Validates a number of requests per second that was written or received.
    ///
    /// # Errors
    /// When it is negative, above [`MAX`](Self::MAX) or not a number.
    pub fn new(per_second: f64) -> Result<Self, InvalidRate> {
        if (0.0..=Self::MAX.0).contains(&per_second) {
            Ok(Self(per_second + 0.0)) // -0.0 becomes 0.0, so that equal rates print alike
        } else {
            Err(InvalidRate(per_second))
        }
    }

    /// Returns a computed rate, at most [`MAX`](Self::MAX); `None` if it is negative or not a number.
    pub fn computed(per_second: f64) -> Option<Self> {
        if per_second > Self::MAX.0 {
            Some(Self::MAX)
        } else {
            Self::new(per_second).ok()
        }
    }

    /// Returns `count` requests over `span`, normalised to one second; `None` for an empty span, because an
    /// unmeasured rate is not zero.
    pub fn over(count: u64, span: Duration) -> Option<Self> {
        if span.is_zero() {
            None
        } else {
            Self::computed(count as f64 / span.as_secs_f64())
        }
    }

    /// The rate in requests per second.
    pub const fn per_second(self) -> f64 {
        self.0
    }

    /// Returns this rate times a share that is clamped to 0..=1 (NaN counts as 0).
    pub fn times(self, share: f64) -> Self {
        Self(
            self.0
                * if share.is_nan() {
                    0.0
                } else {
                    share.clamp(0.0, 1.0)
                },
        )
    }
}

impl Eq for Rate {}

impl Hash for Rate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Equal rates have equal bits: zero has one sign only, and NaN cannot occur.
        self.0.to_bits().hash(state);
    }
}

impl Ord for Rate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Rate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Add for Rate {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self((self.0 + other.0).min(Self::MAX.0))
    }
}

impl TryFrom<f64> for Rate {
    type Error = InvalidRate;

    fn try_from(per_second: f64) -> Result<Self, InvalidRate> {
        Self::new(per_second)
    }
}

impl From<Rate> for f64 {
    fn from(rate: Rate) -> Self {
        rate.0
    }
}

/// The limit of a bucket over all zones together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limit {
    /// Deliberately no limit: everything is admitted.
    Unlimited,
    /// An unknown limit (the policy does not name the bucket, or its source has no value yet): everything is
    /// admitted and counted. This is not a limit of zero.
    #[default]
    Unknown,
    /// At most this many requests per second; zero denies everything.
    PerSecond(Rate),
}

impl Limit {
    /// The limit as a rate, if it has one.
    pub const fn per_second(self) -> Option<Rate> {
        match self {
            Self::PerSecond(rate) => Some(rate),
            Self::Unlimited | Self::Unknown => None,
        }
    }

    /// The limit to show to people. [`Rate::MAX`] stands for none where only tenants have limits.
    pub fn shown(self) -> Option<Rate> {
        self.per_second().filter(|rate| *rate < Rate::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_range_from_zero_to_the_maximum() {
        for bad in [
            -1.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            -f64::MIN_POSITIVE,
            1e12 + 1.0,
            f64::MAX,
        ] {
            assert!(Rate::new(bad).is_err(), "{bad}");
        }
        assert_eq!(Rate::new(1e12).unwrap(), Rate::MAX);
        assert_eq!(
            Rate::new(-0.0).unwrap().per_second().to_bits(),
            0.0_f64.to_bits()
        );
    }

    #[test]
    fn computed_rates_stay_below_the_maximum() {
        assert_eq!(
            [f64::INFINITY, 1e300, 1e12].map(Rate::computed),
            [Some(Rate::MAX); 3]
        );
        assert_eq!([f64::NAN, -1.0].map(Rate::computed), [None, None]);
        assert_eq!(
            Rate::over(u64::MAX, Duration::from_nanos(1)),
            Some(Rate::MAX)
        );
        assert_eq!(Rate::MAX + Rate::MAX, Rate::MAX);
    }

    #[test]
    fn a_count_is_normalised_to_one_second() {
        let half_second = Duration::from_millis(500);
        assert_eq!(
            Rate::over(500, half_second).unwrap(),
            Rate::new(1000.0).unwrap()
        );
        assert_eq!(Rate::over(0, half_second), Some(Rate::ZERO));
        assert_eq!(Rate::over(5, Duration::ZERO), None);
        assert_eq!(Rate::over(0, Duration::ZERO), None);
    }
}
