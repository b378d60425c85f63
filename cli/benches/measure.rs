//! `./measure`: real processes in real time, each figure beside its bar. Not part of the tests, for its figures depend
//! on the machine and on what else the machine is doing.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // it measures or it stops

#[allow(dead_code)]
#[path = "../tests/it/fleet.rs"]
mod fleet;
#[path = "measure/outage.rs"]
mod outage;
#[allow(dead_code)]
#[path = "../tests/it/process.rs"]
mod process;
#[path = "measure/report.rs"]
mod report;

use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fleet::{BUCKET, Fleet, Sample, policy};
use process::until;
use report::Report;

const LIMIT: u32 = 1_000;
const OFFERED: f64 = 3_500.0;
/// What averages are taken over.
const WINDOW: Duration = Duration::from_secs(20);
/// How long a system in change may take to settle before it is measured.
const SETTLE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let mut report = Report::new();
    let mut fleet = Fleet::start(&policy(LIMIT, "enforce", false));
    accuracy(&mut fleet, &mut report);
    wrk(&mut fleet, &mut report);
    fleet.ask(OFFERED);
    fleet.until_rates("the limit to be kept", SETTLE, |rates| {
        (rates.admitted / f64::from(LIMIT) - 1.0).abs() < 0.1
    });
    reload(&fleet, &mut report);
    kill(&fleet, &mut report);
    fleet.stop_asking();
    outage::controller(&mut fleet, &mut report);
    outage::aggregator(&mut fleet, &mut report);
    report.decisions();
    report.finish()
}

/// Four services in two zones of unequal load: the limit holds in total.
fn accuracy(fleet: &mut Fleet, report: &mut Report) {
    fleet.ask(OFFERED);
    sleep(SETTLE);
    let [a, b] = [0, 1].map(|zone| fleet.sample_zone(zone));
    let from = fleet.sample();
    sleep(WINDOW);
    let rates = from.rates_until(&fleet.sample());
    let zones = [a.rates_until(&fleet.sample_zone(0)), b.rates_until(&fleet.sample_zone(1))];
    let error = rates.admitted / f64::from(LIMIT) - 1.0;
    let figure = format!(
        "{:+.2} % ({:.0}/s of {:.0}/s offered; {:.0}/s and {:.0}/s in the zones)",
        error * 100.0,
        rates.admitted,
        rates.offered,
        zones[0].admitted,
        zones[1].admitted
    );
    report.row(
        "admitted over 20 s against the limit, open-loop callers",
        "within 3 %",
        figure,
        error.abs() <= 0.03,
    );
    let seen = fleet.stop_asking();
    report.row(
        "requests without an answer",
        "0",
        format!("{}", sum(&seen, "failed")),
        sum(&seen, "failed") == 0.0,
    );
}

/// The same with callers that are not ours.
fn wrk(fleet: &mut Fleet, report: &mut Report) {
    let what = "admitted over 20 s against the limit, wrk as caller";
    let callers: Result<Vec<_>, _> = fleet
        .zones
        .iter()
        .flat_map(|zone| &zone.services)
        .map(|service| {
            let address = format!("http://{}/{BUCKET}", service.address("listen"));
            let flags = ["-t1", "-c4", "-d40s", "-H", "x-tenant: acme"];
            Command::new("wrk").args(flags).arg(address).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
        })
        .collect();
    let Ok(mut callers) = callers else {
        report.skip(what, "within 3 %", "wrk is not installed");
        return;
    };
    sleep(SETTLE * 2);
    let from = fleet.sample();
    sleep(WINDOW);
    let rates = from.rates_until(&fleet.sample());
    for caller in &mut callers {
        let _ = caller.kill();
        let _ = caller.wait();
    }
    let error = rates.admitted / f64::from(LIMIT) - 1.0;
    let figure =
        format!("{:+.2} % ({:.0}/s of {:.0}/s offered)", error * 100.0, rates.admitted, rates.offered);
    report.row(what, "within 3 %", figure, error.abs() <= 0.03);
}

/// From saving half the limit to seeing it in what is admitted.
fn reload(fleet: &Fleet, report: &mut Report) {
    let half = f64::from(LIMIT) / 2.0;
    let saved = Instant::now();
    fleet.save_policy(&policy(LIMIT / 2, "enforce", false));
    let mut samples = vec![fleet.sample()];
    let seen = until("half the limit", || {
        let now = fleet.sample();
        samples.push(now);
        let from = samples.iter().rev().find(|sample| now.at - sample.at >= Duration::from_millis(500))?;
        (from.rates_until(&now).admitted < 1.15 * half).then_some(now.at)
    });
    let took = (seen - saved).as_secs_f64();
    report.row("halving the limit shows in what is admitted", "<= 2 s", format!("{took:.2} s"), took <= 2.0);
    fleet.save_policy(&policy(LIMIT, "enforce", false));
}

/// From saving the kill switch to the last refusal anywhere, and back.
fn kill(fleet: &Fleet, report: &mut Report) {
    sleep(SETTLE);
    let saved = Instant::now();
    fleet.save_policy(&policy(LIMIT, "enforce", true));
    let (mut last, mut refused_at): (Sample, Instant) = (fleet.sample(), saved);
    while last.at - refused_at < Duration::from_secs(4) {
        let now = fleet.sample();
        if now.drop > last.drop {
            refused_at = now.at;
        }
        last = now;
    }
    let took = (refused_at - saved).as_secs_f64();
    report.row("kill switch: last refusal of any service", "<= 2 s", format!("{took:.2} s"), took <= 2.0);

    fleet.save_policy(&policy(LIMIT, "enforce", false));
    until("the kill to end", || (fleet.controller_metric("plimsoll_killed", "") == 0.0).then_some(()));
    let from = fleet.sample();
    sleep(SETTLE);
    let rates = from.rates_until(&fleet.sample());
    let figure = format!("{:.0}/s refused, {:.0}/s would have been", rates.dropped, rates.would_dropped);
    let shadow = rates.dropped == 0.0 && rates.would_dropped > 0.0;
    report.row("after the kill: shadow until somebody resumes", "0/s refused", figure, shadow);

    fleet.save_policy(&policy(LIMIT, "shadow", false));
    until("the file's shadow", || {
        (fleet.status()?["buckets"][BUCKET]["file_mode"] == "shadow").then_some(())
    });
    fleet.save_policy(&policy(LIMIT, "enforce", false));
    fleet.until_rates("the limit to be kept", SETTLE, |rates| {
        (rates.admitted / f64::from(LIMIT) - 1.0).abs() < 0.1
    });
}

/// The sum of a figure over all callers.
fn sum(seen: &[serde_json::Value], figure: &str) -> f64 {
    seen.iter().filter_map(|figures| figures[figure].as_f64()).sum()
}
