//! A sidecar that runs late counts it, which an alert reads.

use plimsoll_testing::fleet::metric;
use plimsoll_testing::process::{Process, http_get, until};
use plimsoll_testing::turns::{IDLE, turn};

#[test]
fn late_sidecar_counts_its_looks() {
    let _turn = turn(IDLE);
    let free = "127.0.0.1:0";
    let ports = ["--rls", free, "--http", free, "--admin", free];
    let sidecar = Process::start(&[&["sidecar", "--zone", "zone-a"][..], &ports].concat());
    let looks = |late: &str| {
        let page = http_get(sidecar.address("admin"), "/metrics").1;
        metric(
            &page,
            "plimsoll_sidecar_looks_total",
            &format!("late=\"{late}\""),
        )
    };
    until("looks in time", || (looks("false") > 5.0).then_some(()));
    // Stopped for longer than a look may be late. On a busy machine it may really be late more often.
    let before = looks("true");
    sidecar.signal("STOP");
    std::thread::sleep(std::time::Duration::from_millis(500));
    sidecar.signal("CONT");
    until("late looks", || (looks("true") > before).then_some(()));
}
