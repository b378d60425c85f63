//! The time of the fast loop: a grid for its windows, and the periods of the guards' slack.

use std::time::Duration;

use plimsoll_core::law::{SLACK_PERIOD, parameters};
use plimsoll_core::quantity::MonoTime;

/// Bins of windows end this much before the loop reads them. A tick that arrives a little late
/// would otherwise put every later one before the end of its bin, and all rates one bin behind.
const GRID_SLACK: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
pub(super) struct Clock {
    /// Origin of the grid; `None` before the loop runs.
    grid: Option<MonoTime>,
    /// The latest tick, on the grid.
    pub(super) ticked: MonoTime,
    /// The number of the present period of the slack.
    period: u128,
}

impl Clock {
    /// The time on the grid of the windows; `None` before the loop runs.
    pub(super) fn on_grid(&self, now: MonoTime) -> Option<MonoTime> {
        self.grid
            .map(|grid| MonoTime::from_elapsed(now.since(grid) + GRID_SLACK))
    }

    /// Returns true if the loop has missed a tick.
    pub(super) fn is_behind(&self, now: MonoTime) -> bool {
        self.on_grid(now)
            .is_some_and(|now| now.since(self.ticked) > 2 * parameters::FAST_PERIOD)
    }

    /// Advances to `now`. Returns the time since the latest tick, and true if a period of the slack has
    /// ended.
    pub(super) fn advance(&mut self, now: MonoTime) -> (Duration, bool) {
        self.grid.get_or_insert(now);
        let now = self.on_grid(now).unwrap_or_default();
        let elapsed = now.since(self.ticked);
        self.ticked = now;
        // By the grid and not by the latest tick: an early tick must not prolong a period by a
        // tick.
        let period = now.since(MonoTime::ZERO).as_nanos() / SLACK_PERIOD.as_nanos();
        let has_ended = period > self.period;
        self.period = self.period.max(period);
        (elapsed, has_ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_tick_does_not_prolong_a_period() {
        let period = SLACK_PERIOD.as_millis() as u64;
        let at = |ms: u64| MonoTime::from_elapsed(Duration::from_millis(1_000 + ms));
        let mut clock = Clock::default();
        assert_eq!(clock.on_grid(at(0)), None);
        assert!(!clock.advance(at(0)).1);
        assert_eq!(
            clock.on_grid(at(0)),
            Some(MonoTime::from_elapsed(GRID_SLACK))
        );
        assert_eq!(
            clock.advance(at(period - 3)),
            (Duration::from_millis(period - 3), true)
        );
        assert!(!clock.advance(at(2 * period - 10)).1);
        assert!(clock.advance(at(2 * period)).1);
    }
}
