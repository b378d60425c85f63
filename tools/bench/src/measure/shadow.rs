//! Shadow and canary near the limit: the share of requests that are or would be refused equals the
//! share that enforcement refuses.

use std::thread::sleep;

use plimsoll_core::names::Name;
use plimsoll_core::rollout::{Cohort, Percent};
use plimsoll_testing::fleet::{BUCKET, Fleet};
use plimsoll_testing::process::{Process, http_get};

use super::report::Report;
use super::{LIMIT, SETTLE, WINDOW};

const FACTORS: [f64; 3] = [0.9, 1.05, 3.0];
/// In percentage points.
const ERROR_MAX: f64 = 0.5;

pub(crate) fn measure(report: &mut Report) {
    for mode in ["shadow", "canary"] {
        // Half of the instances may enforce, and their refusals must not end the canary.
        let policy = format!(
            "buckets:\n  {BUCKET}: {{ limit: {LIMIT}, mode: {mode} }}\n\
             rollout: {{ require_gates: false, canary_percent: 50, canary: {{ max_drop_ratio: 1, max_p99_delta_ms: 1000 }} }}\n"
        );
        let mut fleet = fleet(&policy);
        for factor in FACTORS {
            fleet.start_load(factor * f64::from(LIMIT));
            sleep(SETTLE * 2);
            let from = decided(&fleet);
            sleep(WINDOW);
            let [offered, refused, would_drop] = since(from, decided(&fleet));
            fleet.stop_load();
            let share = 100.0 * (refused + would_drop) / offered;
            let due = 100.0 * (1.0 - 1.0 / factor).max(0.0);
            let [refused, would_drop] = [refused, would_drop].map(|count| 100.0 * count / offered);
            let figure =
                format!("{share:.2} % ({refused:.2} % refused, {would_drop:.2} % would be)");
            let title = format!(
                "{mode} at {factor} times the limit: (would-dropped + refused) / offered over 20 s"
            );
            let bar = format!("{due:.1} % +- {ERROR_MAX} points");
            report.row(&title, &bar, figure, (share - due).abs() <= ERROR_MAX);
        }
    }
}

/// Starts fleets until one has instances inside and outside the cohort. Instances are named after
/// their ports, which are random.
pub(super) fn fleet(policy: &str) -> Fleet {
    let cohort = Cohort {
        percent: Percent::new(50.0).unwrap(),
        salt: Cohort::salt_of(BUCKET),
    };
    loop {
        let fleet = Fleet::start(policy);
        let services: Vec<_> = fleet.services().collect();
        let enforcing = services.iter().filter(|service| {
            cohort.contains(&Name::new(&service.address("listen").to_string()).unwrap())
        });
        if (1..services.len()).contains(&enforcing.count()) {
            return fleet;
        }
    }
}

/// Decisions of all services so far: offered, refused, would-dropped; guards included.
fn decided(fleet: &Fleet) -> [f64; 3] {
    let page = |service: &Process| http_get(service.address("listen"), "/metrics").1;
    let pages: Vec<String> = fleet.services().map(page).collect();
    // All decisions; refused ones (`guard_drop` ends in `drop`, too); ones that would have been
    // refused.
    let kinds: [fn(&str) -> bool; 3] = [
        |_| true,
        |line| line.contains("drop\"") && !line.contains("would_drop\""),
        |line| line.contains("would_drop\""),
    ];
    kinds.map(|is_counted| {
        let lines = pages.iter().flat_map(|page| page.lines());
        let series =
            lines.filter(|line| line.starts_with("plimsoll_decisions_total{") && is_counted(line));
        series
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    })
}

fn since(from: [f64; 3], to: [f64; 3]) -> [f64; 3] {
    std::array::from_fn(|at| to[at] - from[at])
}
