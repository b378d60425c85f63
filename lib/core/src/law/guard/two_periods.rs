//! The latest two periods of guards, over which their slack and the depth of pools are judged.

use super::SLACK_PERIOD;
use crate::report::Counts;

/// The share of the room below which guards, and not the limit, were the constraint.
pub(crate) const USED_MIN: f64 = 0.97;

/// The counts of the previous period, and its room in requests/s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TwoPeriods {
    before: (Counts, f64),
}

impl TwoPeriods {
    /// Begins without counts, after a period with room for `room` requests/s.
    pub(crate) const fn new(room: f64) -> Self {
        Self {
            before: (Counts::ZERO, room),
        }
    }

    /// Adds a [`SLACK_PERIOD`] with room for `room` requests/s. Returns the counts of the latest two periods,
    /// and the requests that the room present in both had space for. Never one period: half a second of on/off
    /// traffic is all on or all off.
    pub(crate) fn add(&mut self, counts: Counts, room: f64) -> (Counts, f64) {
        let (before, room_before) = std::mem::replace(&mut self.before, (counts, room));
        (
            counts.plus(before),
            room.min(room_before) * 2.0 * SLACK_PERIOD.as_secs_f64(),
        )
    }
}
