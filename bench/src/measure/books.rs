//! Nothing is counted twice and next to nothing not at all, although an aggregator and the controller are killed.

use std::time::Duration;

use crate::fleet_books::{Books, RPS, Run, run};
use crate::report::Report;

const CLIENTS: usize = 200;
const LASTS: Duration = Duration::from_secs(60);
/// How much of the traffic two kills may make nobody's: each what was decided within two roll-up intervals of 500 ms, and on
/// its way.
const LOST: Duration = Duration::from_millis(2 * (2 * 500 + 200));

pub(crate) fn measure(report: &mut Report) {
    let quiet = run(&Run { clients: CLIENTS, lasts: LASTS, kills: false });
    let title = format!("books of {CLIENTS} clients over {} s", LASTS.as_secs());
    let met = quiet.balance() && quiet.counted == quiet.decided;
    report.row(&title, "counted = decided", figure(&quiet), met);
    let killed = run(&Run { clients: CLIENTS, lasts: LASTS, kills: true });
    let most = CLIENTS as f64 * RPS * LOST.as_secs_f64();
    let bar = format!("counted <= decided <= counted + unconfirmed, unconfirmed <= {most:.0}");
    let met = killed.balance() && killed.unconfirmed <= most;
    let title = format!("{title}, aggregator and controller killed once each");
    report.row(&title, &bar, figure(&killed), met);
}

fn figure(books: &Books) -> String {
    let Books { decided, counted, unconfirmed } = books;
    format!("decided {decided}, counted {counted}, unconfirmed {unconfirmed}")
}
