//! Counts after failures: no request is counted twice although an aggregator and the controller are
//! killed, and few requests stay unconfirmed.

use std::time::Duration;

use super::report::Report;
use crate::books::{Books, RPS, Run, run};

const CLIENTS: usize = 200;
const LASTS: Duration = Duration::from_secs(60);
/// Traffic that two kills may leave unconfirmed: for each, the decisions of two roll-up intervals
/// of 500 ms and of the 200 ms that reports are on their way.
const UNCONFIRMED_MAX: Duration = Duration::from_millis(2 * (2 * 500 + 200));

pub(crate) fn measure(report: &mut Report) {
    let quiet = run(&Run {
        clients: CLIENTS,
        lasts: LASTS,
        kills: false,
    });
    let title = format!("counts of {CLIENTS} clients over {} s", LASTS.as_secs());
    let met = quiet.balance() && quiet.counted == quiet.decided;
    report.row(&title, "counted = decided", figure(&quiet), met);
    let killed = run(&Run {
        clients: CLIENTS,
        lasts: LASTS,
        kills: true,
    });
    let most = CLIENTS as f64 * RPS * UNCONFIRMED_MAX.as_secs_f64();
    let bar = format!("counted <= decided <= counted + unconfirmed, unconfirmed <= {most:.0}");
    let met = killed.balance() && killed.unconfirmed <= most;
    let title = format!("{title}, aggregator and controller killed once each");
    report.row(&title, &bar, figure(&killed), met);
}

fn figure(books: &Books) -> String {
    let Books {
        decided,
        counted,
        unconfirmed,
    } = books;
    format!("decided {decided}, counted {counted}, unconfirmed {unconfirmed}")
}
