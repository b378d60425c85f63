//! The virtual clock of a run, and the monotonic clock of each simulated process.

use std::time::Duration;

use plimsoll_core::quantity::MonoTime;

const SECOND: f64 = 1e6;

/// Microseconds since the run began. The settling phase before the scenario's time zero is part of
/// the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SimTime(pub(crate) u64);

impl SimTime {
    pub(crate) const fn plus(self, micros: u64) -> Self {
        Self(self.0 + micros)
    }
}

/// Converts seconds to microseconds. The checks of a scenario reject negative and absurd spans.
pub(crate) fn micros(seconds: f64) -> u64 {
    (seconds * SECOND).round() as u64
}

/// Converts a duration to microseconds, at least 1: an event that plans its own successor must
/// advance time.
pub(crate) fn micros_of(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX).max(1)
}

/// Monotonic clock of one process. It starts at the process's birth with its own offset, so that
/// code which compares the clocks of two processes fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessClock {
    birth: SimTime,
    offset: u64,
    /// Seconds of this clock in a second.
    pace: f64,
}

impl ProcessClock {
    pub(crate) const fn new(birth: SimTime, offset: u64, pace: f64) -> Self {
        Self {
            birth,
            offset,
            pace,
        }
    }

    pub(crate) fn read(&self, now: SimTime) -> MonoTime {
        MonoTime::from_micros(
            ((now.0 - self.birth.0) as f64 * self.pace).round() as u64 + self.offset,
        )
    }

    /// Returns the microseconds of the run in which this clock advances by `span`.
    pub(crate) fn wait(&self, span: Duration) -> u64 {
        ((micros_of(span) as f64 / self.pace).round() as u64).max(1)
    }
}
