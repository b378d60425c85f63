//! A kill order given at an aggregator, or at a controller that could not save it, or its end: with an identity that an
//! end can refer to.

use std::time::Duration;

use super::{KillGeneration, Scope};
use crate::report::InstanceId;

/// Maximum number of kill orders that an aggregator keeps or a report carries. A part of it is kept for orders given
/// there: orders of child aggregators beyond the rest are not relayed.
pub const KILL_ORDERS_MAX: usize = 4_096;

/// The identity of a kill order: its scope, and the process where it was given.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderId {
    /// The scope.
    pub scope: Scope,
    /// The aggregator's process, or the controller's.
    pub given_at: InstanceId,
}

/// The state of a kill order. Of two states of one order the greater is the later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KillOrder {
    /// The generation of the scope at that process when the order or its end was given there.
    /// Odd: the order is active; even: it has ended.
    pub generation: KillGeneration,
    /// The time since then. It is measured by the monotonic clocks of the aggregators on the way, and lacks
    /// the time that messages take.
    pub age: Duration,
    /// True for the end of a kill that its aggregator held without knowing an order for it: it ends every order
    /// for the scope that the aggregator was not sent.
    pub ends_held: bool,
}

impl KillOrder {
    /// Returns true if the order is active.
    pub const fn is_in_force(self) -> bool {
        self.generation.is_killed()
    }
}
