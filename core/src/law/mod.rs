//! The control laws: offered rates in, drop ratios out. One law, one file, behind one small trait.

mod guard;
mod parameters;
mod proportional;

pub use guard::{Guard, ZoneGuard, client_rate};
pub use parameters::Parameters;
pub use proportional::Proportional;

use std::time::Duration;

use crate::rate::Rate;
use crate::ratio::DropRatio;

/// What one tenant class asks of a bucket, summed over all zones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// The rate offered, normalised to one second.
    pub offered: Rate,
}

/// A control law for one bucket, fed once a tick. Pure: the time since the last tick is an argument.
pub trait Law: std::fmt::Debug {
    /// Decides how much of each demand is refused, given what the bucket may admit over all zones. `ratios` is
    /// cleared and filled, one for each demand in the same order.
    fn on_tick(&mut self, since_last: Duration, limit: Rate, demands: &[Demand], ratios: &mut Vec<DropRatio>);
}
