//! A surge: what is offered jumps from less than the limit to ten times as much.

use std::thread::sleep;
use std::time::Duration;

use crate::fleet::{Fleet, policy};
use crate::outage::watch;
use crate::report::Report;
use crate::{LIMIT, sum};

/// Multiples of the limit, before and after.
const FROM: f64 = 0.8;
const TO: f64 = 10.0;
/// The surge begins so long after the callers do.
const CALM: Duration = Duration::from_secs(10);
/// Watching begins before the surge and goes on until it is long over.
const BEFORE: Duration = Duration::from_secs(3);
const WATCHED: Duration = Duration::from_secs(18);

pub(crate) fn measure(report: &mut Report) {
    let mut fleet = Fleet::start(&policy(LIMIT, "enforce", false));
    let limit = f64::from(LIMIT);
    fleet.ask_in_steps(&[(Duration::ZERO, FROM * limit), (CALM, TO * limit)]);
    sleep(CALM - BEFORE);
    let seen = watch(&fleet, |since| (since >= WATCHED).then_some(()));
    report.row(
        "step from 0.8 to 10 times the limit: most admitted in any second",
        "<= 2 x the limit",
        format!("{:.2} x the limit", seen.most_admitted),
        seen.most_admitted <= 2.0,
    );
    let callers = fleet.stop_asking();
    let (failed, not_sent) = (sum(&callers, "failed"), sum(&callers, "not_sent"));
    report.row(
        "step from 0.8 to 10 times the limit: requests without an answer, or not sent",
        "0",
        format!("{failed}, {not_sent} of {}", sum(&callers, "sent") + not_sent),
        failed + not_sent == 0.0,
    );
}
