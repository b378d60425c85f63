//! Simultaneous groups of requests, as from a caller that sends a batch: far below the limit they
//! are admitted.

use std::time::Duration;

use super::instances::Instances;
use super::traffic::{Flow, arrivals};
use super::{INSTANCES, LIMIT, TENANTS, row};
use crate::measure::report::Report;

const GROUP: usize = 20;
const FACTOR: f64 = 0.05;
/// Length of the load in seconds, and of the part for aggregators to learn the size of the groups.
const LASTS: u64 = 80;
const LEFT_OUT: u64 = 20;

pub(super) fn measure(report: &mut Report) {
    for instances in INSTANCES {
        let flow = |tenant| Flow {
            tenant,
            rps: FACTOR * f64::from(LIMIT) / 2.0,
            group: GROUP,
        };
        let load = (Duration::from_secs(LASTS), TENANTS.map(flow).into());
        let record = Instances::start(instances, LIMIT).serve(&arrivals(&[load], instances));
        let judged = record.lost(LIMIT).judged(LEFT_OUT, LASTS);
        let lost = judged.refused(None);
        let what = format!(
            "groups of {GROUP} at once, {:.0} % of the limit, {instances} services: lost over 60 s",
            FACTOR * 100.0
        );
        row(
            report,
            &what,
            "<= 1 %",
            &judged,
            &format!("{:.2} %", lost * 100.0),
            lost <= 0.01,
        );
    }
}
