//! The alert of a sidecar that runs late, evaluated by a real Prometheus server.

use crate::alerts::{Alerts, SIDECAR_LATE};
use crate::process::Process;
use crate::turns::{IDLE, turn};

#[test]
fn alert_of_a_late_sidecar_fires_until_it_runs() {
    let _turn = turn(IDLE);
    let free = ["--rls", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let sidecar = Process::start(&[&["sidecar", "--zone", "zone-a", "--no-sockets"], &free[..]].concat());
    let test = "sidecar::late::alert_of_a_late_sidecar_fires_until_it_runs";
    let Some(mut alerts) = Alerts::of(test, vec![sidecar.address("admin")]) else { return };
    sidecar.signal("STOP");
    alerts.until_pages("0", "1");
    sidecar.signal("CONT");
    alerts.until_firing(&[SIDECAR_LATE]);
    alerts.until_resolved(&[SIDECAR_LATE]);
}
