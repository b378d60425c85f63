//! Plans over two zones: customers far above the limit of their plan pass it and no more, and those at half of it are not
//! refused.

use std::collections::HashMap;
use std::time::Duration;

use plimsoll_testing::fleet::{BUCKET, Fleet};

use super::instances::Instances;
use super::record::Decision;
use super::traffic::{Flow, arrivals};
use crate::measure::report::Report;

/// Each plan with its limit in requests/s.
const PLANS: [(&str, f64); 3] = [("free", 1.0), ("pro", 2.0), ("team", 5.0)];
const NAMES: usize = 10_000;
/// One name in so many is hot. Loads are multiples of the limit of a name.
const HOT_EVERY: usize = 100;
const HOT: f64 = 10.0;
const OTHERS: f64 = 0.5;
const INSTANCES: usize = 4;
/// Seconds of the load, of its part that is not judged, and of a window.
const LASTS: u64 = 45;
const FROM: u64 = 5;
const WINDOW: u64 = 10;
const REFUSED_MAX: f64 = 0.001;

/// The decisions of a window, or of several.
#[derive(Clone, Copy, Default)]
struct Window {
    /// Hot names' requests that passed, by plan.
    hot: [u32; PLANS.len()],
    others: u32,
    others_refused: u32,
}

pub(in crate::measure) fn measure(report: &mut Report) {
    let (mut flows, mut hot) = (Vec::new(), HashMap::new());
    for (plan, (name, limit)) in PLANS.into_iter().enumerate() {
        for number in 0..NAMES {
            let tenant: &'static str = format!("{name}-{number}%~{name}").leak();
            let is_hot = number % HOT_EVERY == 0;
            hot.extend(is_hot.then_some((tenant, plan)));
            let rps = limit * if is_hot { HOT } else { OTHERS };
            flows.push(Flow {
                tenant,
                rps,
                group: 1,
            });
        }
    }
    let load = arrivals(&[(Duration::from_secs(LASTS), flows)], INSTANCES);
    let fleet = Fleet::without_services(&policy(), &tenants());
    let record = Instances::below(fleet, INSTANCES).serve(&load);

    let starts = FROM..=LASTS - WINDOW;
    let windows: Vec<Window> = starts
        .map(|start| Window::of(record.between(start, start + WINDOW), &hot))
        .collect();
    for (plan, (name, limit)) in PLANS.into_iter().enumerate() {
        let passed = || windows.iter().map(|window| window.hot[plan]);
        let (least, most) = passed()
            .min()
            .zip(passed().max())
            .expect("there are windows");
        let allowed = (NAMES / HOT_EVERY) as f64 * limit * WINDOW as f64;
        let max = 1.05 * allowed + 3.0 * allowed.sqrt();
        report.row(
            &format!(
                "{} names of plan {name}, {limit}/s each, at {HOT} times that: passed in any 10 s",
                NAMES / HOT_EVERY
            ),
            &format!("<= {max:.0}, which is 1.05 of their limits and three deviations"),
            format!("{least} to {most}, limits {allowed:.0}"),
            f64::from(most) <= max,
        );
    }
    let refused = windows.iter().map(Window::refused).fold(0.0, f64::max);
    let all = Window::of(record.between(FROM, LASTS), &hot);
    report.row(
        &format!(
            "{} names at {OTHERS} of their limits: refused in any 10 s",
            PLANS.len() * NAMES - hot.len()
        ),
        "<= 0.1 %",
        format!(
            "{:.3} %, {} of {} requests in all",
            refused * 100.0,
            all.others_refused,
            all.others
        ),
        refused <= REFUSED_MAX,
    );
    let latest = record.between(FROM, LASTS).iter().map(|made| made.late);
    let latest = latest.max().unwrap_or_default().as_millis();
    report.note("longest delay of a request", format!("{latest} ms"));
}

fn policy() -> String {
    format!(
        "buckets: {{ {BUCKET}: {{ limit: unlimited, mode: enforce }} }}\nrollout: {{ require_gates: false }}\n"
    )
}

fn tenants() -> String {
    let plan = |(name, limit)| format!("  {name}: {{ limits: {{ {BUCKET}: {limit} }} }}\n");
    let plans: String = PLANS.map(plan).concat();
    format!("plans:\n{plans}tenants: {{ default: {{}} }}\n")
}

// === impl Window ===

impl Window {
    fn of(decisions: &[Decision], hot: &HashMap<&str, usize>) -> Self {
        let mut window = Self::default();
        for decision in decisions {
            let refused = u32::from(decision.refused.is_some());
            if let Some(plan) = hot.get(decision.tenant) {
                window.hot[*plan] += 1 - refused;
            } else {
                window.others += 1;
                window.others_refused += refused;
            }
        }
        window
    }

    fn refused(&self) -> f64 {
        f64::from(self.others_refused) / f64::from(self.others.max(1))
    }
}
