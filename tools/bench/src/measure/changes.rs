//! Policy changes under load: the time from saving a file to its effect.

use std::thread::sleep;
use std::time::{Duration, Instant};

use plimsoll_testing::fleet::{BUCKET, Fleet, Sample, latest_rates, policy};
use plimsoll_testing::process::until;

use super::outage::OFFERED;
use super::report::Report;
use super::{LIMIT, SETTLE, limit_error};

pub(crate) fn measure(report: &mut Report) {
    let mut fleet = Fleet::start(&policy(LIMIT, "enforce", false));
    fleet.start_load(OFFERED);
    fleet.until_rates("the limit to be kept", SETTLE, |rates| {
        limit_error(rates).abs() < 0.1
    });
    reload(&fleet, report);
    kill(&fleet, report);
}

fn reload(fleet: &Fleet, report: &mut Report) {
    let half = f64::from(LIMIT) / 2.0;
    let saved = Instant::now();
    fleet.save_policy(&policy(LIMIT / 2, "enforce", false));
    let mut samples = vec![fleet.sample()];
    let seen = until("half the limit", || {
        let now = fleet.sample();
        samples.push(now);
        let rates = latest_rates(&samples, Duration::from_millis(500))?;
        (rates.admitted < 1.15 * half).then_some(now.at)
    });
    let took = (seen - saved).as_secs_f64();
    let figure = format!("{took:.2} s");
    report.row(
        "halving the limit in the file: time until half is admitted",
        "<= 2 s",
        figure,
        took <= 2.0,
    );
    fleet.save_policy(&policy(LIMIT, "enforce", false));
}

/// Measures the time from saving the kill switch to the last refusal, and checks the shadow that
/// follows it.
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
    let figure = format!("{took:.2} s");
    report.row(
        "kill switch in the file: time until the last refusal",
        "<= 2 s",
        figure,
        took <= 2.0,
    );

    fleet.save_policy(&policy(LIMIT, "enforce", false));
    until("the kill to end", || {
        (fleet.controller_metric("plimsoll_killed", "") == 0.0).then_some(())
    });
    let from = fleet.sample();
    sleep(SETTLE);
    let rates = from.rates_until(&fleet.sample());
    let figure = format!(
        "{:.0}/s refused, {:.0}/s would be",
        rates.dropped, rates.would_dropped
    );
    let shadow = rates.dropped == 0.0 && rates.would_dropped > 0.0;
    report.row(
        "after the kill: refusals while the bucket stays in shadow",
        "0/s refused",
        figure,
        shadow,
    );

    fleet.save_policy(&policy(LIMIT, "shadow", false));
    until("shadow in the file to be read", || {
        (fleet.status()?["buckets"][BUCKET]["file_mode"] == "shadow").then_some(())
    });
    fleet.save_policy(&policy(LIMIT, "enforce", false));
    fleet.until_rates("the limit to be kept", SETTLE, |rates| {
        limit_error(rates).abs() < 0.1
    });
}
