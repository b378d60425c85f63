//! The report interval of children: longer while the aggregator is overloaded, shorter again once
//! it is expected to cope.

use std::time::Duration;

/// The possible intervals, shortest first.
pub const INTERVALS: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_millis(1_000),
];
/// Busy share above which the aggregator is overloaded.
const BUSY: f64 = 0.7;
/// Minimum busy share of an overload too high to measure. The longest interval applies immediately,
/// and shorter ones are found from there.
const SATURATED: f64 = 0.93;
/// Minimum busy share for ticks that are late by half the interval to count as overload. Below it
/// the machine is the cause.
const BUSY_AND_LATE: f64 = 0.35;
/// A shorter interval is chosen only if the expected busy share is at most this.
const CALM: f64 = 0.45;
/// Consecutive overloaded measurements before the interval becomes longer.
const LONGER_AFTER: u32 = 2;
/// Consecutive calm measurements before the interval becomes shorter.
const SHORTER_AFTER: u32 = 5;

/// The load of the process since the last measurement, about a second ago.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// The share of their time that its threads were busy, 0 to 1.
    pub busy: f64,
    /// Maximum delay of a tick.
    pub late: Duration,
}

/// Chooses the report interval by the load. The load at a shorter interval is expected to grow in the ratio of the
/// intervals, so a step that would have to be taken back is not taken. That is the hysteresis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportInterval {
    /// Index into [`INTERVALS`].
    step: usize,
    overloaded: u32,
    calm: u32,
}

impl ReportInterval {
    /// The current interval.
    pub fn interval(&self) -> Duration {
        INTERVALS[self.step]
    }

    /// Takes a measurement and returns the interval from now on.
    pub fn on_load(&mut self, load: Load) -> Duration {
        let interval = self.interval();
        let is_late = load.late * 2 >= interval && load.busy >= BUSY_AND_LATE;
        let is_overloaded = load.busy >= BUSY || is_late;
        self.overloaded = if is_overloaded {
            self.overloaded + 1
        } else {
            0
        };
        let shorter = self.step.checked_sub(1);
        let expected =
            shorter.map(|step| load.busy * interval.as_secs_f64() / INTERVALS[step].as_secs_f64());
        self.calm = if expected.is_some_and(|busy| busy <= CALM) {
            self.calm + 1
        } else {
            0
        };
        let last = INTERVALS.len() - 1;
        let next = if load.busy >= SATURATED {
            Some(last)
        } else if self.overloaded >= LONGER_AFTER && self.step < last {
            Some(self.step + 1)
        } else {
            shorter.filter(|_| self.calm >= SHORTER_AFTER)
        };
        if let Some(step) = next {
            *self = Self {
                step,
                ..Self::default()
            };
        }
        self.interval()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ON_TIME: Duration = Duration::ZERO;

    /// The intervals in ms after each of `count` equal measurements.
    fn after(chooser: &mut ReportInterval, count: usize, busy: f64, late: Duration) -> Vec<u128> {
        (0..count)
            .map(|_| chooser.on_load(Load { busy, late }).as_millis())
            .collect()
    }

    #[test]
    fn interval_follows_load_and_returns_slowly() {
        let mut chooser = ReportInterval::default();
        let table: [(usize, f64, &[u128]); 8] = [
            (3, 0.69, &[100, 100, 100]),
            (5, 0.9, &[100, 250, 250, 500, 500]),
            (3, 0.9, &[1_000, 1_000, 1_000]),
            // Half the interval would double the work.
            (6, 0.23, &[1_000; 6]),
            (5, 0.22, &[1_000, 1_000, 1_000, 1_000, 500]),
            (5, 0.22, &[500, 500, 500, 500, 250]),
            (6, 0.19, &[250; 6]),
            (5, 0.17, &[250, 250, 250, 250, 100]),
        ];
        for (count, busy, due) in table {
            assert_eq!(after(&mut chooser, count, busy, ON_TIME), due, "{busy}");
        }
    }

    #[test]
    fn single_measurement_changes_nothing() {
        let mut chooser = ReportInterval::default();
        for busy in [0.9, 0.1, 0.9, 0.1, 0.9, 0.1] {
            assert_eq!(after(&mut chooser, 1, busy, ON_TIME), [100], "{busy}");
        }
        after(&mut chooser, 2, 0.9, ON_TIME);
        for _ in 0..5 {
            assert_eq!(after(&mut chooser, 4, 0.0, ON_TIME), [250; 4]);
            assert_eq!(after(&mut chooser, 1, 0.5, ON_TIME), [250]);
        }
    }

    #[test]
    fn saturation_chooses_the_longest_interval_immediately() {
        let mut chooser = ReportInterval::default();
        assert_eq!(after(&mut chooser, 2, 0.93, ON_TIME), [1_000, 1_000]);
        assert_eq!(after(&mut chooser, 5, 0.2, ON_TIME).pop(), Some(500));
    }

    #[test]
    fn late_ticks_count_only_when_busy() {
        let late = Duration::from_millis(50);
        for (busy, late, due) in [
            (0.1, late, 100),
            (0.34, late * 10, 100),
            (0.35, late, 250),
            (0.35, late - Duration::from_millis(1), 100),
        ] {
            let mut chooser = ReportInterval::default();
            assert_eq!(
                after(&mut chooser, 2, busy, late).pop(),
                Some(due),
                "{busy} {late:?}"
            );
        }
    }

    proptest! {
        /// With a constant cost per report the interval settles and never changes again.
        #[test]
        fn steady_load_leads_to_a_steady_interval(work in 0.0..3.0_f64) {
            let mut chooser = ReportInterval::default();
            let mut seen = Vec::new();
            for _ in 0..60 {
                let busy = (work * 0.1 / chooser.interval().as_secs_f64()).min(1.0);
                seen.push(chooser.on_load(Load { busy, late: ON_TIME }));
            }
            prop_assert!(seen[30..].iter().all(|interval| *interval == seen[30]), "{seen:?}");
        }
    }
}
