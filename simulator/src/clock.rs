//! The virtual clock: time as the simulation sees it, and as each simulated process does.

use plimsoll_core::time::MonoTime;

/// Microseconds in a second.
const SECOND: f64 = 1e6;

/// A point of virtual time, in microseconds since the run began. The settling phase before the scenario's own zero
/// is part of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SimTime(pub(crate) u64);

impl SimTime {
    pub(crate) const fn plus(self, micros: u64) -> Self {
        Self(self.0 + micros)
    }
}

/// A span in microseconds. Negative and absurd spans do not get past the scenario's checks.
pub(crate) fn micros(seconds: f64) -> u64 {
    (seconds * SECOND).round() as u64
}

/// The monotonic clock of one process: it begins at its birth, at a point of its own, so that no two processes'
/// clocks agree and none may be compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessClock {
    birth: SimTime,
    offset: u64,
}

impl ProcessClock {
    pub(crate) const fn new(birth: SimTime, offset: u64) -> Self {
        Self { birth, offset }
    }

    pub(crate) const fn read(&self, now: SimTime) -> MonoTime {
        MonoTime::from_micros(now.0 - self.birth.0 + self.offset)
    }
}
