//! A sidecar that runs late counts it, which an alert reads.

use plimsoll_testing::process::{FREE_SIDECAR, Process, until_true};
use plimsoll_testing::turns::{IDLE, turn};

#[test]
fn late_sidecar_counts_its_looks() {
    let _turn = turn(IDLE);
    let sidecar = Process::start(&[&["sidecar", "--zone", "zone-a"], &FREE_SIDECAR[..]].concat());
    let looks = |late: &str| {
        let label = format!("late=\"{late}\"");
        sidecar.metric("admin", "plimsoll_sidecar_looks_total", &label)
    };
    until_true("looks in time", || looks("false") > 5.0);
    // Stopped for longer than a look may be late. On a busy machine it may really be late more often.
    let before = looks("true");
    sidecar.signal("STOP");
    std::thread::sleep(std::time::Duration::from_millis(500));
    sidecar.signal("CONT");
    until_true("late looks", || looks("true") > before);
}
