//! What people are told of a limit that is being learned.

use plimsoll_policy::learning::{CLEAN_MINUTES_MIN, DAYS_MIN, window};
use plimsoll_policy::UnixSeconds;

use super::*;

impl Standing {
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
