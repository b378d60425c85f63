//! Division of rates between zones: by presence, by where the traffic is, and between aggregators below an
//! aggregator.

pub mod presence;
mod sharing;
mod split;

pub use sharing::{Sharing, ZoneSharer};
pub use split::{SplitChild, Whole, ZonePart};
