//! The parameters of an integer token bucket.

use std::fmt;

/// Maximum number of tokens or milliseconds: what a reply as a signed 64-bit integer can say.
pub const TOKENS_MAX: u64 = i64::MAX as u64;

/// The size of a bucket and its refill: `refill` tokens at every whole `every_ms` since the bucket began, up to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuotaRate {
    max: u64,
    refill: u64,
    every_ms: u64,
}

/// The reason why parameters are no rate of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidQuotaRate {
    /// A parameter is 0 or too large.
    #[error("`{0}` must be between 1 and 9223372036854775807")]
    OutOfRange(&'static str),
}

impl QuotaRate {
    /// Makes a rate of `refill` tokens every `every_ms` milliseconds; at most `max` can be saved
    /// up.
    ///
    /// # Errors
    /// When a parameter is 0 or above [`TOKENS_MAX`].
    pub const fn new(max: u64, refill: u64, every_ms: u64) -> Result<Self, InvalidQuotaRate> {
        if max == 0 || max > TOKENS_MAX {
            return Err(InvalidQuotaRate::OutOfRange("max"));
        }
        if refill == 0 || refill > TOKENS_MAX {
            return Err(InvalidQuotaRate::OutOfRange("refill"));
        }
        if every_ms == 0 || every_ms > TOKENS_MAX {
            return Err(InvalidQuotaRate::OutOfRange("every"));
        }
        Ok(Self {
            max,
            refill,
            every_ms,
        })
    }

    /// The tokens of a full bucket.
    pub const fn max(self) -> u64 {
        self.max
    }

    /// The tokens of one refill.
    pub const fn refill(self) -> u64 {
        self.refill
    }

    /// The time between two refills in milliseconds.
    pub const fn every_ms(self) -> u64 {
        self.every_ms
    }
}

impl fmt::Display for QuotaRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} tokens, {} more every {} ms",
            self.max, self.refill, self.every_ms
        )
    }
}
