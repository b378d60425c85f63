//! The pace of one zone: how busy the process is, how often children report, and when directives are sent to
//! them.

pub(crate) mod load_meter;
pub(crate) mod push_schedule;
pub mod report_interval;

use std::time::Duration;

use plimsoll_core::law::{Parameters, parameters};
use plimsoll_core::quantity::MonoTime;

use push_schedule::PushSchedule;
use report_interval::{Load, ReportInterval};

/// A report that covers at least this span counts as late: it shows how many requests there were, not their
/// present rate.
const LATE: Duration = Duration::from_millis(1_500);
/// The threshold of late reports in report intervals. The longer threshold applies.
const LATE_INTERVALS: u32 = 3;

#[derive(Debug)]
pub(crate) struct Schedule {
    /// The interval at which the controller sends rates.
    tick: Duration,
    pub(crate) report_interval: Duration,
    chooser: ReportInterval,
    pub(crate) load: Load,
    pub(crate) pushes: PushSchedule,
}

impl Schedule {
    pub(crate) fn new(parameters: &Parameters) -> Self {
        Self {
            tick: parameters.tick,
            report_interval: parameters.report_interval,
            chooser: ReportInterval::default(),
            load: Load::default(),
            pushes: PushSchedule::default(),
        }
    }

    pub(crate) fn on_load(&mut self, load: Load) {
        self.load = load;
        self.report_interval = self.chooser.on_load(load);
    }

    pub(crate) fn late_from(&self) -> Duration {
        LATE.max(self.report_interval * LATE_INTERVALS)
    }

    pub(crate) fn is_due_on_tick(&self, now: MonoTime) -> bool {
        self.pushes
            .is_due(now, self.report_interval, parameters::FAST_PERIOD)
    }

    /// Returns true if directives are due on this message of the parent. After a decision every
    /// message passes immediately.
    pub(crate) fn is_due_on_message(&self, now: MonoTime) -> bool {
        self.pushes.is_due(now, self.report_interval, self.tick)
            || self.pushes.follows_decision(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_threshold_has_a_floor() {
        let mut schedule = Schedule::new(&Parameters::default());
        assert_eq!(schedule.late_from(), LATE);
        let overloaded = Load {
            busy: 1.0,
            late: Duration::ZERO,
        };
        schedule.on_load(overloaded);
        assert_eq!(
            (schedule.load, schedule.report_interval),
            (overloaded, Duration::from_secs(1))
        );
        assert_eq!(schedule.late_from(), Duration::from_secs(3));
    }
}
