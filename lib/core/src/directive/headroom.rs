//! Shared headroom as directives carry it: an aggregator's part of a bucket's headroom, and the pool that its
//! clients draw from.

use crate::decision::token_bucket::TokenCount;
use crate::quantity::{OutOfRange, Rate};

/// The part of a bucket's limit that its keys do not use, shared by all of them. No headroom is not a
/// headroom of zero: without it a bucket is overloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headroom {
    /// The bucket is overloaded: every key has its allocation and no more.
    None,
    /// Requests/s that any key may use.
    Shared(Rate),
}

impl Headroom {
    /// The headroom in requests/s, if there is any.
    pub const fn rate(self) -> Option<Rate> {
        match self {
            Self::None => None,
            Self::Shared(rate) => Some(rate),
        }
    }
}

/// The headroom pool of one bucket as a zone sends it, the same to each client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZonePool {
    /// The rate of all pools of the zone together; without headroom there is no pool.
    pub rate: Headroom,
    /// The offered rate of the bucket in the zone; the client's share of it sets its part of the pool.
    pub offered: Rate,
    /// The factor on the depth that a pool has by its share.
    pub depth: PoolDepth,
    /// The depth to which `depth` raises the pools of the zone together at most.
    pub burst: TokenCount,
}

/// The factor that a zone has learned for the depth of its pools, 1 to 12, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolDepth(u32);

impl PoolDepth {
    /// The factor before anything is learned.
    pub const MIN: Self = Self(1_000);
    /// The largest factor.
    pub const MAX: Self = Self(12_000);

    /// Validates a factor in thousandths, as it travels.
    ///
    /// # Errors
    /// Outside 1000..=12000.
    pub const fn new(thousandths: u32) -> Result<Self, OutOfRange> {
        if Self::MIN.0 <= thousandths && thousandths <= Self::MAX.0 {
            Ok(Self(thousandths))
        } else {
            Err(OutOfRange {
                range: "a factor on the depth of pools is 1000 to 12000 thousandths",
                got: thousandths as f64,
            })
        }
    }

    /// Returns the nearest valid factor; NaN counts as 1.
    pub fn nearest(factor: f64) -> Self {
        // The cast saturates, and NaN becomes 0.
        Self((factor * 1e3).round() as u32).clamp(Self::MIN, Self::MAX)
    }

    /// The factor in thousandths.
    pub const fn thousandths(self) -> u32 {
        self.0
    }

    /// The factor as a number in 1..=12.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_outside_1_to_12_is_refused() {
        for thousandths in [0, 999, 12_001, u32::MAX] {
            assert!(PoolDepth::new(thousandths).is_err());
        }
        for thousandths in [1_000, 1_500, 12_000] {
            assert_eq!(
                PoolDepth::new(thousandths).map(PoolDepth::thousandths),
                Ok(thousandths)
            );
        }
        for (factor, nearest) in [(f64::NAN, 1.0), (-1.0, 1.0), (1.2344, 1.234), (99.0, 12.0)] {
            assert_eq!(PoolDepth::nearest(factor).as_f64(), nearest);
        }
    }
}
