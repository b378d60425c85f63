//! A surge: the offered load jumps from below the limit to ten times the limit.

use std::thread::sleep;
use std::time::Duration;

use plimsoll_testing::fleet::{Fleet, policy};

use super::outage::watch;
use super::report::Report;
use super::{LIMIT, sum};

const FROM: f64 = 0.8;
const TO: f64 = 10.0;
const CALM: Duration = Duration::from_secs(10);
const BEFORE: Duration = Duration::from_secs(3);
const WATCHED: Duration = Duration::from_secs(18);

pub(crate) fn measure(report: &mut Report) {
    let mut fleet = Fleet::start(&policy(LIMIT, "enforce", false));
    let limit = f64::from(LIMIT);
    fleet.start_load_in_steps(&[(Duration::ZERO, FROM * limit), (CALM, TO * limit)]);
    sleep(CALM - BEFORE);
    let watched = watch(&fleet, |since| since >= WATCHED);
    let most = watched.most_admitted;
    let title = "step from 0.8 to 10 times the limit: most admitted in any second";
    report.row(
        title,
        "<= 1.65 x the limit",
        format!("{most:.2} x the limit"),
        most <= 1.65,
    );
    let summaries = fleet.stop_load();
    let (failed, not_sent) = (sum(&summaries, "failed"), sum(&summaries, "not_sent"));
    let title = "step from 0.8 to 10 times the limit: requests without an answer, or not sent";
    let figure = format!(
        "{failed}, {not_sent} of {}",
        sum(&summaries, "sent") + not_sent
    );
    report.row(title, "0", figure, failed + not_sent == 0.0);
}
