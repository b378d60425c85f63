//! The slack of a guard: an adaptive factor on its rate. It grows while the guard refuses requests that would
//! have fitted below the limit.

use std::time::Duration;

use super::{TwoPeriods, USED_MIN};
use crate::law::parameters;
use crate::report::Counts;

/// The period between adaptations of the slack.
pub const SLACK_PERIOD: Duration = Duration::from_millis(500);
/// The share of offered requests above which guard refusals count as many.
const GUARDED_MAX: f64 = 0.01;
const BAD_MAX: f64 = 3.0;
const BAD_FADES: f64 = 0.5;
const GROWS: f64 = 1.25;
const SHRINKS: f64 = 0.99;

/// The factor phi on one key's guard in one zone.
#[derive(Clone, Copy, Debug)]
pub struct Slack {
    factor: f64,
    /// The number of looks that found the guard too tight, less what has faded. The factor grows at `BAD_MAX` and
    /// shrinks at 0.
    bad: f64,
    periods: TwoPeriods,
}

impl Default for Slack {
    fn default() -> Self {
        Self {
            factor: parameters::SLACK_MIN,
            bad: 0.0,
            periods: TwoPeriods::new(f64::INFINITY),
        }
    }
}

impl Slack {
    /// Returns the current factor.
    pub const fn factor(&self) -> f64 {
        self.factor
    }

    /// Adapts the slack after a [`SLACK_PERIOD`] with `counts` and room of the key for `cap`
    /// requests/s. Judges two periods, and only room present in both counts as wasted. A zone that
    /// reports a surge first is given the room of the others for one tick and cannot have used it
    /// yet.
    pub fn on_period(&mut self, counts: Counts, cap: f64) {
        let (seen, room) = self.periods.add(counts, cap);
        let guarded = seen.guarded() as f64 > GUARDED_MAX * seen.offered as f64;
        if guarded && (seen.passed() as f64) < USED_MIN * room {
            self.bad = (self.bad + 1.0).min(BAD_MAX);
            if self.bad >= BAD_MAX {
                self.factor = (self.factor * GROWS).min(parameters::SLACK_MAX);
            }
        } else {
            self.bad = (self.bad - BAD_FADES).max(0.0);
        }
        if self.bad == 0.0 {
            self.factor = (self.factor * SHRINKS).max(parameters::SLACK_MIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(offered: u64, guarded: u64, coined: u64) -> Counts {
        Counts {
            offered,
            guard_dropped: guarded,
            dropped: coined,
            ..Counts::ZERO
        }
    }

    #[test]
    fn slack_grows_while_guards_waste_room() {
        let mut slack = Slack::default();
        // Room for 1,000/s, half of it used although more was offered.
        let wasteful = period(500, 250, 0);
        for _ in 0..2 {
            slack.on_period(wasteful, 1_000.0);
            assert_eq!(slack.factor(), 1.5, "twice may be chance");
        }
        slack.on_period(wasteful, 1_000.0);
        assert_eq!(slack.factor(), 1.875);
        (0..20).for_each(|_| slack.on_period(wasteful, 1_000.0));
        assert_eq!(slack.factor(), 6.0, "and no more");
        // Guard refusals waste nothing when the room is used up.
        let full = period(1_000, 500, 0);
        (0..9).for_each(|_| slack.on_period(full, 1_000.0));
        assert!(slack.factor() < 6.0, "{}", slack.factor());
        (0..500).for_each(|_| slack.on_period(full, 1_000.0));
        assert_eq!(slack.factor(), 1.5);
    }

    #[test]
    fn one_roomy_period_is_no_waste() {
        let mut slack = Slack::default();
        let wasteful = period(500, 250, 0);
        for _ in 0..20 {
            slack.on_period(wasteful, 1_000.0);
            slack.on_period(wasteful, 100.0);
        }
        assert_eq!(slack.factor(), 1.5);
    }

    #[test]
    fn shadow_slack_adapts_as_under_enforcement() {
        let mut slack = Slack::default();
        let wasteful = Counts {
            offered: 500,
            would_dropped: 250,
            would_guard_dropped: 250,
            ..Counts::ZERO
        };
        (0..3).for_each(|_| slack.on_period(wasteful, 1_000.0));
        assert_eq!(slack.factor(), 1.875);
    }

    #[test]
    fn alternating_traffic_is_judged_whole() {
        let mut slack = Slack::default();
        // One half of a second uses all of its room, and the guard cuts the rest.
        for _ in 0..20 {
            slack.on_period(period(5_000, 4_000, 0), 1_000.0);
            slack.on_period(Counts::ZERO, 1_000.0);
        }
        assert_eq!(slack.factor(), 1.5);
    }
}
