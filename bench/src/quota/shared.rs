//! Four sidecars that use up a quota of 10,000 a hundred times, with faults of every kind: what is admitted and lost.

use std::time::Duration;

use crate::measure::report::Report;
use crate::shared_quota::{Fault, LEASE, MAX, SIDECARS, Sidecars};

const RUNS_EACH: u64 = 14;
/// The part of all debited tokens that may be lost.
const LOST_MAX: f64 = 0.001;

pub(super) fn measure(report: &mut Report) {
    let mut sidecars = Sidecars::start();
    let stalls = [20, 60].map(|ms| Fault::StoreStalls(Duration::from_millis(ms)));
    let others = [Fault::None, Fault::Fresh, Fault::Restarts, Fault::StoreKilled, Fault::SidecarKilled];
    for fault in others.into_iter().chain(stalls) {
        // Of a sidecar that dies, and of answers that a dying store does not send.
        let in_flight = match fault {
            Fault::SidecarKilled => LEASE,
            Fault::StoreKilled => LEASE * SIDECARS as u64,
            _ => 0,
        };
        let (mut most, mut lost, mut most_lost) = (0, 0, 0);
        for _ in 0..RUNS_EACH {
            let books = sidecars.use_up(fault);
            (most, lost) = (most.max(books.admitted), lost + books.lost);
            most_lost = most_lost.max(books.lost.saturating_sub(books.unanswered));
        }
        let name = format!("{SIDECARS} sidecars, {fault:?}, {RUNS_EACH} runs");
        report.row(
            &format!("{name}: most admitted of {MAX}"),
            &format!("<= {MAX}"),
            most.to_string(),
            most <= MAX,
        );
        let part = lost as f64 / (RUNS_EACH * MAX) as f64;
        let figure = format!("{:.3} %, {most_lost} in one run", part * 100.0);
        let is_met = part <= LOST_MAX && (in_flight == 0 || most_lost <= in_flight);
        report.row(&format!("{name}: debited and lost"), "<= 0.1 %", figure, is_met);
    }
}
