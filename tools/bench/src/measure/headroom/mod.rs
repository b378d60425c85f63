//! Traffic that fits is admitted: below the limit, in groups, right after an overload, and on the
//! way through the stages of a rollout.

mod after;
mod constant;
pub(super) mod cuts;
mod groups;
mod instances;
pub(super) mod plans;
mod promotion;
mod record;
mod returns;
pub(super) mod takeover;
mod traffic;

use super::report::Report;
use record::Judged;

/// Requests/s: so low that chance makes the rate of a moment much higher than its mean.
const LIMIT: u32 = 240;
const INSTANCES: [usize; 2] = [2, 20];
/// One tenant with a line in the policy and one of the default class.
const TENANTS: [&str; 2] = ["acme", "corner-shop"];

pub(crate) fn measure(report: &mut Report) {
    constant::measure(report);
    groups::measure(report);
    after::measure(report);
    promotion::measure(report);
}

/// Adds a figure of judged decisions with its bar, unless this machine was too busy to judge most
/// of them.
fn row(report: &mut Report, what: &str, bar: &str, judged: &Judged, figure: &str, is_met: bool) {
    let figure = format!("{figure} ({})", judged.basis());
    if judged.is_enough() {
        report.row(what, bar, figure, is_met);
    } else {
        report.skip(what, bar, &format!("this machine was too busy: {figure}"));
    }
}
