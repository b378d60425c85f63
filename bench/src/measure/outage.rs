//! A tier is killed for a minute under load and comes back: protection goes on, nobody waits, nothing opens up.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::fleet::{Fleet, policy};
use crate::process::until;
use crate::report::Report;
use crate::{LIMIT, SETTLE, WINDOW, sum};

/// What is offered meanwhile, in requests/s.
pub(crate) const OFFERED: f64 = 3_500.0;
const AWAY: Duration = Duration::from_secs(60);
/// What the least protected moment is looked for in.
const MOMENT: Duration = Duration::from_secs(1);

pub(crate) fn measure(report: &mut Report) {
    let mut fleet = Fleet::start(&policy(LIMIT, "enforce", false));
    controller(&mut fleet, report);
    aggregator(&mut fleet, report);
}

/// The controller is killed and started again on what it wrote down.
fn controller(fleet: &mut Fleet, report: &mut Report) {
    let epoch = fleet.status().unwrap()["epoch"].as_u64();
    fleet.ask(OFFERED);
    sleep(SETTLE);
    fleet.controller.kill_9();
    let away = watch(fleet, |since| (since >= AWAY).then_some(()));
    fleet.restart_controller();
    let started = Instant::now();
    let mut led = None;
    let back = watch(fleet, |_| {
        if led.is_none() && fleet.status().is_some_and(|status| status["leading"] == true) {
            led = Some(started.elapsed());
        }
        led.filter(|led| started.elapsed() - *led >= WINDOW)
    });
    let higher = fleet.status().unwrap()["epoch"].as_u64() > epoch;
    let figure = format!("{:.0} s after its start, epoch higher: {higher}", led.unwrap().as_secs_f64());
    report.row(
        "controller back: it leads again",
        "<= 40 s, epoch higher",
        figure,
        led.unwrap().as_secs() <= 40 && higher,
    );
    rows(fleet, report, "controller", &away, &back);
}

/// One of the two aggregators is killed and started again with nothing.
fn aggregator(fleet: &mut Fleet, report: &mut Report) {
    fleet.ask(OFFERED);
    sleep(SETTLE);
    fleet.zones[0].aggregator.kill_9();
    let away = watch(fleet, |since| (since >= AWAY).then_some(()));
    fleet.restart_aggregator(0);
    let services = fleet.zones[0].services.len() as f64;
    let mut returned = None;
    let back = watch(fleet, |since| {
        let ready = fleet.aggregator_metric(0, "plimsoll_children") == services
            && fleet.aggregator_metric(0, "plimsoll_quiet") == 0.0;
        returned = returned.or(ready.then_some(since));
        returned.filter(|returned| since - *returned >= WINDOW)
    });
    let took = returned.unwrap().as_secs_f64();
    report.row("aggregator back: all its clients are, too", "<= 45 s", format!("{took:.0} s"), took <= 45.0);
    rows(fleet, report, "aggregator", &away, &back);
}

/// What was seen over a while.
pub(crate) struct Watch {
    /// The smallest share refused in any second.
    least_refused: f64,
    /// The largest multiple of the limit admitted in any second.
    pub(crate) most_admitted: f64,
    /// Admitted against the limit over the last 20 s.
    error: f64,
}

/// Watches the services until there is an answer.
pub(crate) fn watch<T>(fleet: &Fleet, mut until: impl FnMut(Duration) -> Option<T>) -> Watch {
    let begin = fleet.sample();
    let mut samples = vec![begin];
    let (mut least_refused, mut most_admitted) = (1.0_f64, 0.0_f64);
    while until(begin.at.elapsed()).is_none() {
        sleep(Duration::from_millis(100));
        let now = fleet.sample();
        samples.push(now);
        if let Some(from) = samples.iter().rev().find(|sample| now.at - sample.at >= MOMENT) {
            let rates = from.rates_until(&now);
            least_refused = least_refused.min(rates.dropped / rates.offered);
            most_admitted = most_admitted.max(rates.admitted / f64::from(LIMIT));
        }
    }
    let end = samples[samples.len() - 1];
    let from = samples.iter().rev().find(|sample| end.at - sample.at >= WINDOW).unwrap_or(&begin);
    Watch { least_refused, most_admitted, error: from.rates_until(&end).admitted / f64::from(LIMIT) - 1.0 }
}

fn rows(fleet: &mut Fleet, report: &mut Report, what: &str, away: &Watch, back: &Watch) {
    let moment = |watch: &Watch| {
        format!(
            "{:.0} %, at most {:.2} of the limit admitted",
            watch.least_refused * 100.0,
            watch.most_admitted
        )
    };
    let ideal = 1.0 - f64::from(LIMIT) / OFFERED;
    let bar = format!("> {:.0} % of {:.0} %", ideal * 50.0, ideal * 100.0);
    let title = format!("{what} killed for 60 s: least refused in any second");
    report.row(&title, &bar, moment(away), away.least_refused > ideal / 2.0);
    let title = format!("{what} back: least refused in any second");
    report.row(&title, &bar, moment(back), back.least_refused > ideal / 2.0);
    let title = format!("{what} back: admitted over the last 20 s against the limit");
    report.row(&title, "within 3 %", format!("{:+.2} %", back.error * 100.0), back.error.abs() <= 0.03);
    let errors = fleet.service_logs().iter().filter(|line| line.contains("\"ERROR\"")).count();
    let lines = fleet.service_logs().len();
    let title = format!("{what} killed: errors logged by services");
    report.row(&title, "0", format!("{errors} (of {lines} lines in all)"), errors == 0);
    let seen = fleet.stop_asking();
    let worst = seen.iter().filter_map(|figures| figures["p99_ms"].as_f64()).fold(0.0, f64::max);
    let failed = sum(&seen, "failed");
    let figure = format!("{failed} of {}, p99 of a request {worst:.1} ms", sum(&seen, "sent"));
    report.row(&format!("{what} killed: requests without an answer"), "0", figure, failed == 0.0);
    // The next part begins from calm.
    until("the limit to be free", || (fleet.status()?["leading"] == true).then_some(()));
}
