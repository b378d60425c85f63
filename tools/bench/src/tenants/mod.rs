//! Fleets with users as tenants: another name with each request.

use std::thread::sleep;
use std::time::Duration;

use plimsoll_testing::one_limiter::{LIMIT, Limiter, OneLimiter, means_10s};

use crate::measure::report::Report;

const OFFERED: [f64; 2] = [1.05, 1.85];
/// Time between the start of the tiers and the traffic.
const UP: Duration = Duration::from_secs(10);
const LOAD: Duration = Duration::from_secs(45);

pub(crate) fn measure(report: &mut Report) {
    for kind in [Limiter::Middleware, Limiter::Sidecar] {
        for offered in OFFERED {
            for (up, from, start) in [
                (UP, 3, "tiers up for 10 s"),
                (Duration::ZERO, 8, "all fresh"),
            ] {
                let fleet = OneLimiter::start(kind);
                sleep(up);
                let limit = f64::from(LIMIT);
                let (seconds, failed) = fleet.offer(offered * limit, LOAD);
                let (least, most) = means_10s(&seconds, from);
                let worst = seconds[from..]
                    .iter()
                    .copied()
                    .fold(f64::INFINITY, f64::min);
                let name = format!("{kind:?}, each request of another name, {offered} L, {start}");
                let figure = format!("{least:.1} .. {most:.1} of {limit}");
                let holds = least >= 0.95 * limit && most <= 1.05 * limit;
                report.row(
                    &format!("{name}: admitted in 10 s"),
                    "0.95 to 1.05 of the limit",
                    figure,
                    holds,
                );
                let title = format!("{name}: least admitted in any second");
                report.row(&title, ">= 60", format!("{worst:.0}"), worst >= 60.0);
                report.row(
                    &format!("{name}: failed requests"),
                    "0",
                    format!("{failed}"),
                    failed == 0.0,
                );
            }
        }
    }
}
