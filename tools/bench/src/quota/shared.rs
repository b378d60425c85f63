//! Four sidecars that use up a quota of 10,000 a hundred times, with faults of every kind: admitted
//! requests and lost tokens.

use std::time::Duration;

use plimsoll_testing::quota_sidecars::{Fault, LEASE, MAX, SIDECARS, Sidecars};

use crate::measure::report::Report;

const RUNS_EACH: u64 = 14;
const FAULTS: [(&str, Fault); 7] = [
    ("warm", Fault::None),
    ("fresh", Fault::Fresh),
    ("restarted in turn", Fault::Restarts),
    ("store killed", Fault::StoreKilled),
    ("one killed", Fault::SidecarKilled),
    (
        "store stalls of 20 ms",
        Fault::StoreStalls(Duration::from_millis(20)),
    ),
    (
        "store stalls of 60 ms",
        Fault::StoreStalls(Duration::from_millis(60)),
    ),
];
/// Part of all debited tokens that may be lost.
const LOST_MAX: f64 = 0.001;

pub(super) fn measure(report: &mut Report) {
    let mut sidecars = Sidecars::start();
    let mut lost = 0;
    for (name, fault) in FAULTS {
        // Tokens of a sidecar that dies, and of answers that a dying store does not send.
        let lost_max = match fault {
            Fault::SidecarKilled => LEASE,
            Fault::StoreKilled => LEASE * SIDECARS as u64,
            _ => MAX / 1_000,
        };
        let (mut most, mut most_lost) = (0, 0);
        for _ in 0..RUNS_EACH {
            let books = sidecars.use_up(fault);
            (most, lost) = (most.max(books.admitted), lost + books.lost);
            most_lost = most_lost.max(books.lost.saturating_sub(books.unanswered));
        }
        let name = format!("{SIDECARS} sidecars, {name}, {RUNS_EACH} runs");
        report.row(
            &format!("{name}: most admitted of {MAX}"),
            &format!("<= {MAX}"),
            most.to_string(),
            most <= MAX,
        );
        report.row(
            &format!(
                "{name}: most tokens lost in one run, besides those of requests without an answer"
            ),
            &format!("<= {lost_max}"),
            most_lost.to_string(),
            most_lost <= lost_max,
        );
    }
    let runs = RUNS_EACH * FAULTS.len() as u64;
    let part = lost as f64 / (runs * MAX) as f64;
    report.row(
        &format!("all {runs} runs: lost of what was debited"),
        "<= 0.1 %",
        format!("{:.3} %", part * 100.0),
        part <= LOST_MAX,
    );
}
