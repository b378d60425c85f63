//! Division of rates between zones: by presence, by where the traffic is, and between aggregators below an
//! aggregator.

pub mod presence;
mod sharing;
mod split;

pub use sharing::{Share, Sharing};
pub use split::{Child, Part, Whole};
