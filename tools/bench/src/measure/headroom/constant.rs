//! Constant traffic below the limit: no request of any tenant is refused.

use std::time::Duration;

use super::instances::Instances;
use super::traffic::{Flow, arrivals};
use super::{INSTANCES, LIMIT, TENANTS, row};
use crate::measure::report::Report;

const FACTORS: [f64; 3] = [0.25, 0.5, 0.8];
const SHARES: [f64; 2] = [0.8, 0.2];
/// Length of each load in seconds, and of the unmeasured part at its beginning.
const LASTS: u64 = 70;
const LEFT_OUT: u64 = 10;
const MAX: f64 = 0.0005;

pub(super) fn measure(report: &mut Report) {
    for instances in INSTANCES {
        let load = |factor: f64| {
            let flow = |(tenant, share)| Flow {
                tenant,
                rps: factor * share * f64::from(LIMIT),
                group: 1,
            };
            (
                Duration::from_secs(LASTS),
                TENANTS.into_iter().zip(SHARES).map(flow).collect(),
            )
        };
        let fleet = Instances::start(instances, LIMIT);
        let record = fleet.serve(&arrivals(&FACTORS.map(load), instances));
        for (from, factor) in (0..).step_by(LASTS as usize).zip(FACTORS) {
            let judged = record.judged(from + LEFT_OUT, from + LASTS);
            let refused = TENANTS.map(|tenant| judged.refused(Some(tenant)));
            let what = format!(
                "{:.0} % of the limit, {instances} services: refused over 60 s",
                factor * 100.0
            );
            let figure =
                [0, 1].map(|at| format!("{:.3} % of {}", refused[at] * 100.0, TENANTS[at]));
            let is_met = refused.iter().all(|share| *share <= MAX);
            row(
                report,
                &what,
                "<= 0.05 % of each tenant",
                &judged,
                &figure.join(", "),
                is_met,
            );
        }
    }
}
