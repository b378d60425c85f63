//! Drills, which measure on the live fleet how long a kill takes to reach every client. A drill number
//! travels in the same messages as the kill generations and changes no mode.
//!
//! A kill generation cannot serve as the number. A generation that grew by 2 has the same parity, but a
//! process that missed the number in between has to take it for a kill and its end, which leaves every bucket
//! in shadow.

mod spread;
mod timing;

pub use spread::{SPREAD_STEPS_MAX, SPREAD_ZONES_MAX, Spread};
pub use timing::{DrillTiming, DueChild};

use super::claimable;

/// The number of a drill, merged by `max` like a kill generation; 0 before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Drill(pub u64);

impl Drill {
    /// The next drill.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns true if a peer may claim this drill, seen from a process that holds `self`.
    pub const fn accepts(self, claimed: Self) -> bool {
        claimed.0 <= claimable(self.0)
    }
}
