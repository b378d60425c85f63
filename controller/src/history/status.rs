//! The progress of learning a limit, as `/status` shows it.

use plimsoll_policy::learning::{Baseline, CLEAN_MINUTES_MIN, DAYS_MIN, Step, window};
use plimsoll_policy::{Learned, UnixSeconds};
use serde::Serialize;

/// The progress of learning the limit of one bucket.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LearningStatus {
    /// The learned limit in requests/s; null before there is one.
    pub limit_rps: Option<f64>,
    /// The first second of the day since which it has this value, in UTC.
    pub since: Option<String>,
    /// Remembered days with a peak.
    pub days: usize,
    /// The number of them, counted from the last, over which the limit is taken.
    pub days_counted: usize,
    /// Clean minutes of the present day.
    pub minutes_today: usize,
    /// Minutes of the present day that are not clean: something was refused, or a kill was on.
    pub left_out_today: usize,
    /// Why no limit was learned yet.
    pub waits_for: Option<String>,
}

impl LearningStatus {
    pub(super) fn of(
        baseline: Option<&Baseline>,
        step: Option<Step>,
        learned: &Learned,
        failing: bool,
    ) -> Self {
        let days = baseline.map_or(0, |baseline| baseline.peaks().len());
        let (minutes_today, left_out_today) = baseline.map_or((0, 0), Baseline::minutes);
        let since = step.map(|step| UnixSeconds::from_secs(step.since.first_minute().as_unix()).to_string());
        let waits_for = if step.is_some() {
            None
        } else if failing {
            Some("a state directory that can be written: nothing is learned until then".to_owned())
        } else {
            Some(format!(
                "the peaks of {DAYS_MIN} days, of which there are {days}; a day needs {CLEAN_MINUTES_MIN} minutes with \
                 requests and without refusals"
            ))
        };
        Self {
            limit_rps: step.map(|step| step.limit.per_second()),
            since,
            days,
            days_counted: days.min(window(learned)),
            minutes_today,
            left_out_today,
            waits_for,
        }
    }
}
