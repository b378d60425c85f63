//! Quantities that are valid by construction: rates, limits, drop ratios and points in monotonic time.

mod rate;
mod ratio;
mod time;

pub use rate::{InvalidRate, Limit, Rate};
pub use ratio::{DropRatio, InvalidRatio};
pub use time::{MonoTime, Pace};
