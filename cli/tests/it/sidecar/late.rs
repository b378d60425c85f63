//! The alert of a sidecar that runs late, evaluated by a real Prometheus server.

use std::process::Command;

use plimsoll_testing::process::{Process, until};
use plimsoll_testing::turns::{ALL, turn};

use crate::prometheus::alerts::{Alerts, SIDECAR_LATE};

#[test]
fn late_sidecar_alert_fires_until_it_runs() {
    // Next to other tests it may really be late.
    let _turn = turn(ALL);
    let free = [
        "--rls",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
    ];
    let sidecar = Process::start(&[&["sidecar", "--zone", "zone-a"], &free[..]].concat());
    // Ahead of everything else on the machine, with every thread. Without the permission it may take longer.
    let id = sidecar.id().to_string();
    let _ = Command::new("chrt")
        .args(["--all-tasks", "--rr", "--pid", "10", &id])
        .status();
    let test = "sidecar::late::late_sidecar_alert_fires_until_it_runs";
    // It has no aggregator, so another alert may fire before the server is first asked.
    let Some(alerts) = Alerts::scraping(test, vec![sidecar.address("admin")]) else {
        return;
    };
    alerts.until_resolved(&[SIDECAR_LATE]);
    until("the alert to fire", || {
        sidecar.signal("STOP");
        alerts.until_pages("0", "1");
        sidecar.signal("CONT");
        alerts.until_pages("1", "2");
        alerts.firing()?.contains(SIDECAR_LATE).then_some(())
    });
    alerts.until_resolved(&[SIDECAR_LATE]);
}
