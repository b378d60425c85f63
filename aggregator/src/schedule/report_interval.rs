//! How often clients shall report: a busy aggregator asks for less, and for more again only when it is sure to cope.

use std::time::Duration;

/// The intervals there are, from the shortest.
pub const INTERVALS: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_millis(1_000),
];
/// Above this share of its time an aggregator is too busy.
const BUSY: f64 = 0.7;
/// From here on nobody can tell how much too busy: the longest interval helps at once, and the way back is found from there.
const SWAMPED: f64 = 0.93;
/// Ticks that come late by half the interval are too late, if it is the aggregator's own doing: so busy it must be.
const BUSY_AND_LATE: f64 = 0.35;
/// A shorter interval must be expected to leave it no busier than this.
const CALM: f64 = 0.45;
/// Looks in a row that must say the same for the interval to become longer, and shorter.
const LONGER_AFTER: u32 = 2;
const SHORTER_AFTER: u32 = 5;

/// What an aggregator saw of itself since it last looked, which should be about a second ago.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// The share of their time that its threads were busy, 0 to 1.
    pub busy: f64,
    /// By how much the latest of its ticks was late.
    pub late: Duration,
}

/// Chooses the interval. Pure; hysteresis lies in looking ahead: what costs `b` at an interval will cost about `b` times
/// as much at a shorter one, so that a step that would have to be taken back is not taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportInterval {
    step: usize,
    too_busy: u32,
    calm: u32,
}

impl ReportInterval {
    /// The interval in force.
    #[must_use]
    pub fn interval(&self) -> Duration {
        INTERVALS[self.step]
    }

    /// Takes note of how it went; returns the interval from now on.
    pub fn on_load(&mut self, load: Load) -> Duration {
        let interval = self.interval();
        let is_late = load.late * 2 >= interval && load.busy >= BUSY_AND_LATE;
        let too_busy = load.busy >= BUSY || is_late;
        self.too_busy = if too_busy { self.too_busy + 1 } else { 0 };
        let shorter = self.step.checked_sub(1);
        let expected = shorter.map(|step| load.busy * interval.as_secs_f64() / INTERVALS[step].as_secs_f64());
        self.calm = if expected.is_some_and(|busy| busy <= CALM) { self.calm + 1 } else { 0 };
        if load.busy >= SWAMPED {
            *self = Self { step: INTERVALS.len() - 1, ..Self::default() };
        } else if self.too_busy >= LONGER_AFTER && self.step + 1 < INTERVALS.len() {
            *self = Self { step: self.step + 1, ..Self::default() };
        } else if let Some(step) = shorter.filter(|_| self.calm >= SHORTER_AFTER) {
            *self = Self { step, ..Self::default() };
        }
        self.interval()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ON_TIME: Duration = Duration::ZERO;

    /// The intervals in ms after each of so many looks at the same load.
    fn after(cadence: &mut ReportInterval, looks: usize, busy: f64, late: Duration) -> Vec<u128> {
        (0..looks).map(|_| cadence.on_load(Load { busy, late }).as_millis()).collect()
    }

    #[test]
    fn the_interval_follows_the_load_step_by_step_and_comes_back_slowly() {
        let mut cadence = ReportInterval::default();
        let table: [(usize, f64, &[u128]); 8] = [
            (3, 0.69, &[100, 100, 100]),
            (5, 0.9, &[100, 250, 250, 500, 500]),
            (3, 0.9, &[1_000, 1_000, 1_000]),
            // Half the interval would be twice the work.
            (6, 0.23, &[1_000; 6]),
            (5, 0.22, &[1_000, 1_000, 1_000, 1_000, 500]),
            (5, 0.22, &[500, 500, 500, 500, 250]),
            (6, 0.19, &[250; 6]),
            (5, 0.17, &[250, 250, 250, 250, 100]),
        ];
        for (looks, busy, due) in table {
            assert_eq!(after(&mut cadence, looks, busy, ON_TIME), due, "{busy}");
        }
    }

    #[test]
    fn one_bad_second_changes_nothing_and_neither_does_one_good_one() {
        let mut cadence = ReportInterval::default();
        for busy in [0.9, 0.1, 0.9, 0.1, 0.9, 0.1] {
            assert_eq!(after(&mut cadence, 1, busy, ON_TIME), [100], "{busy}");
        }
        after(&mut cadence, 2, 0.9, ON_TIME);
        for _ in 0..5 {
            assert_eq!(after(&mut cadence, 4, 0.0, ON_TIME), [250; 4]);
            assert_eq!(after(&mut cadence, 1, 0.5, ON_TIME), [250]);
        }
    }

    #[test]
    fn an_aggregator_that_is_swamped_asks_for_the_least_at_once() {
        let mut cadence = ReportInterval::default();
        assert_eq!(after(&mut cadence, 2, 0.93, ON_TIME), [1_000, 1_000]);
        assert_eq!(after(&mut cadence, 5, 0.2, ON_TIME).pop(), Some(500));
    }

    #[test]
    fn ticks_that_come_late_count_if_it_is_its_own_doing() {
        let late = Duration::from_millis(50);
        for (busy, late, due) in [
            (0.1, late, 100),
            (0.34, late * 10, 100),
            (0.35, late, 250),
            (0.35, late - Duration::from_millis(1), 100),
        ] {
            let mut cadence = ReportInterval::default();
            assert_eq!(after(&mut cadence, 2, busy, late).pop(), Some(due), "{busy} {late:?}");
        }
    }

    proptest! {
        /// Under work that costs the same for each report, it settles: after a while it never changes again.
        #[test]
        fn a_steady_load_meets_a_steady_interval(work in 0.0..3.0_f64) {
            let mut cadence = ReportInterval::default();
            let mut seen = Vec::new();
            for _ in 0..60 {
                let busy = (work * 0.1 / cadence.interval().as_secs_f64()).min(1.0);
                seen.push(cadence.on_load(Load { busy, late: ON_TIME }));
            }
            prop_assert!(seen[30..].iter().all(|interval| *interval == seen[30]), "{seen:?}");
        }
    }
}
