//! The time after an overload: requests that fit again are soon admitted.

use std::time::Duration;

use super::instances::Instances;
use super::traffic::{Flow, arrivals};
use super::{INSTANCES, LIMIT, TENANTS, row};
use crate::measure::report::Report;

pub(super) fn measure(report: &mut Report) {
    fall(report);
    for instances in INSTANCES {
        lone_caller(instances, report);
    }
}

/// A fall from ten times the limit to below it. It has settled when few requests are refused over
/// half a second, for three seconds.
fn fall(report: &mut Report) {
    /// As in the step up, so that half a second has enough requests.
    const LIMIT: u32 = crate::measure::LIMIT;
    const SECONDS: u64 = 20;
    const SHARE: f64 = 0.05;
    let instances = INSTANCES[1];
    let load = |factor: f64| {
        let flow = |tenant| Flow {
            tenant,
            rps: factor * f64::from(LIMIT) / 2.0,
            group: 1,
        };
        (Duration::from_secs(SECONDS), TENANTS.map(flow).into())
    };
    let record =
        Instances::start(instances, LIMIT).serve(&arrivals(&[load(10.0), load(0.8)], instances));
    let judged = record.judged(SECONDS, SECONDS + 6);
    let settled = record.settled(Duration::from_secs(SECONDS), SHARE);
    let figure = settled.map_or("never".to_owned(), |settled| {
        format!("{:.1} s", settled.as_secs_f64())
    });
    let what =
        format!("10 to 0.8 times the limit, {instances} services: until at most 5 % is refused");
    let is_met = settled.is_some_and(|settled| settled <= Duration::from_millis(2_500));
    row(report, &what, "<= 2.5 s", &judged, &figure, is_met);
}

/// A surge of one tenant, and then one caller of the same tenant with a few requests.
fn lone_caller(instances: usize, report: &mut Report) {
    const SURGE_SECONDS: u64 = 60;
    const SURGE: f64 = 70.0;
    const SECONDS: u64 = 20;
    const RPS: f64 = 3.0;
    let load = |seconds, rps| {
        (
            Duration::from_secs(seconds),
            vec![Flow {
                tenant: TENANTS[0],
                rps,
                group: 1,
            }],
        )
    };
    let phases = [
        load(SURGE_SECONDS, SURGE * f64::from(LIMIT)),
        load(SECONDS, RPS),
    ];
    let record = Instances::start(instances, LIMIT).serve(&arrivals(&phases, instances));
    let judged = record.judged(SURGE_SECONDS + 1, SURGE_SECONDS + SECONDS);
    let refused = judged.refused(None);
    let what = format!(
        "{SURGE} times the limit for {SURGE_SECONDS} s, {instances} services: refused of {RPS}/s of the same \
         tenant, from 1 s after it on"
    );
    row(
        report,
        &what,
        "0",
        &judged,
        &format!("{:.1} %", refused * 100.0),
        refused == 0.0,
    );
}
