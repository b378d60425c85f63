//! Quantities that are valid by construction: rates, limits, drop ratios, points in monotonic time and tokens.

mod rate;
mod ratio;
mod time;
mod token_bucket;

pub use rate::{InvalidRate, Limit, Rate};
pub use ratio::DropRatio;
pub use time::{MonoTime, Pace};
pub use token_bucket::TokenBucket;

/// A number outside of the range of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{range}, not {got}")]
pub struct OutOfRange {
    /// The quantity and its range.
    pub range: &'static str,
    /// The number.
    pub got: f64,
}
