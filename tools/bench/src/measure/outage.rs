//! Outages: a tier is killed under load for a minute and restarted. Protection continues, and every
//! request is answered.

use std::thread::sleep;
use std::time::{Duration, Instant};

use plimsoll_testing::fleet::{Fleet, latest_rates, policy};
use plimsoll_testing::process::until;

use super::report::Report;
use super::{LIMIT, SETTLE, WINDOW, limit_error, sum};

/// Requests/s.
pub(crate) const OFFERED: f64 = 3_500.0;
const OUTAGE: Duration = Duration::from_secs(60);
/// Span for the minimum of protection.
const MOMENT: Duration = Duration::from_secs(1);

pub(crate) fn measure(report: &mut Report) {
    let mut fleet = Fleet::start(&policy(LIMIT, "enforce", false));
    controller(&mut fleet, report);
    aggregator(&mut fleet, report);
}

fn controller(fleet: &mut Fleet, report: &mut Report) {
    let epoch = fleet.status().unwrap()["epoch"].as_u64();
    fleet.start_load(OFFERED);
    sleep(SETTLE);
    fleet.controller.kill_9();
    let during = watch(fleet, |since| since >= OUTAGE);
    fleet.restart_controller();
    let started = Instant::now();
    let mut led = None;
    let back = watch(fleet, |_| {
        if led.is_none()
            && fleet
                .status()
                .is_some_and(|status| status["leading"] == true)
        {
            led = Some(started.elapsed());
        }
        led.is_some_and(|led| started.elapsed() - led >= WINDOW)
    });
    let higher = fleet.status().unwrap()["epoch"].as_u64() > epoch;
    let led = led.unwrap();
    let figure = format!(
        "{:.0} s after its start, epoch higher: {higher}",
        led.as_secs_f64()
    );
    let met = led.as_secs() <= 40 && higher;
    report.row(
        "controller back: time until it leads",
        "<= 40 s, epoch higher",
        figure,
        met,
    );
    rows(fleet, report, "controller", &during, &back);
}

fn aggregator(fleet: &mut Fleet, report: &mut Report) {
    fleet.start_load(OFFERED);
    sleep(SETTLE);
    fleet.zones[0].aggregator.kill_9();
    let during = watch(fleet, |since| since >= OUTAGE);
    fleet.restart_aggregator(0);
    let services = fleet.zones[0].services.len() as f64;
    let mut returned = None;
    let back = watch(fleet, |since| {
        let ready = fleet.aggregator_metric(0, "plimsoll_children") == services
            && fleet.aggregator_metric(0, "plimsoll_warming_up") == 0.0;
        returned = returned.or(ready.then_some(since));
        returned.is_some_and(|returned| since - returned >= WINDOW)
    });
    let took = returned.unwrap().as_secs_f64();
    let title = "aggregator back: time until all its clients are connected";
    report.row(title, "<= 45 s", format!("{took:.0} s"), took <= 45.0);
    rows(fleet, report, "aggregator", &during, &back);
}

pub(crate) struct Watch {
    /// Minimum share of refused requests in any second.
    least_refused: f64,
    /// Maximum number of admitted requests in any second, as a multiple of the limit.
    pub(crate) most_admitted: f64,
    /// Relative error of the admitted requests against the limit over the last 20 s.
    error: f64,
}

/// Samples the services until the closure, called with the time since the start, returns true.
pub(crate) fn watch(fleet: &Fleet, mut is_over: impl FnMut(Duration) -> bool) -> Watch {
    let begin = fleet.sample();
    let mut samples = vec![begin];
    let (mut least_refused, mut most_admitted) = (1.0_f64, 0.0_f64);
    while !is_over(begin.at.elapsed()) {
        sleep(Duration::from_millis(100));
        samples.push(fleet.sample());
        if let Some(rates) = latest_rates(&samples, MOMENT) {
            least_refused = least_refused.min(rates.dropped / rates.offered);
            most_admitted = most_admitted.max(rates.admitted / f64::from(LIMIT));
        }
    }
    let rates = latest_rates(&samples, WINDOW);
    let rates = rates.unwrap_or_else(|| begin.rates_until(&samples[samples.len() - 1]));
    Watch {
        least_refused,
        most_admitted,
        error: limit_error(&rates),
    }
}

fn rows(fleet: &mut Fleet, report: &mut Report, what: &str, during: &Watch, back: &Watch) {
    let moment = |Watch {
                      least_refused,
                      most_admitted,
                      ..
                  }: &Watch| {
        format!(
            "{:.0} %, at most {most_admitted:.2} of the limit admitted",
            least_refused * 100.0
        )
    };
    let ideal = 1.0 - f64::from(LIMIT) / OFFERED;
    let bar = format!("> {:.0} % of {:.0} %", ideal * 50.0, ideal * 100.0);
    let title = format!("{what} killed for 60 s: least refused in any second");
    report.row(
        &title,
        &bar,
        moment(during),
        during.least_refused > ideal / 2.0,
    );
    let title = format!("{what} back: least refused in any second");
    report.row(&title, &bar, moment(back), back.least_refused > ideal / 2.0);
    let title = format!("{what} back: admitted over the last 20 s against the limit");
    report.row(
        &title,
        "within 3 %",
        format!("{:+.2} %", back.error * 100.0),
        back.error.abs() <= 0.03,
    );
    let errors = fleet
        .service_logs()
        .iter()
        .filter(|line| line.contains("\"ERROR\""))
        .count();
    let lines = fleet.service_logs().len();
    let title = format!("{what} killed: errors logged by services");
    report.row(
        &title,
        "0",
        format!("{errors} (of {lines} lines in all)"),
        errors == 0,
    );
    let summaries = fleet.stop_load();
    let worst = summaries
        .iter()
        .filter_map(|figures| figures["p99_ms"].as_f64())
        .fold(0.0, f64::max);
    let failed = sum(&summaries, "failed");
    let figure = format!(
        "{failed} of {}, p99 of a request {worst:.1} ms",
        sum(&summaries, "sent")
    );
    report.row(
        &format!("{what} killed: requests without an answer"),
        "0",
        figure,
        failed == 0.0,
    );
    // The next part begins without load.
    until("the controller to lead", || {
        (fleet.status()?["leading"] == true).then_some(())
    });
}
