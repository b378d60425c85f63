//! Quantities that are valid by construction: rates, limits, drop ratios, points in monotonic time and tokens.

mod rate;
mod ratio;
mod time;
mod token_bucket;

pub use rate::{InvalidRate, Limit, Rate};
pub use ratio::{DropRatio, InvalidRatio};
pub use time::{MonoTime, Pace};
pub use token_bucket::TokenBucket;
