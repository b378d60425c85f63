//! Faults of several controllers and their store show in the metrics that alerts read, until they are over.

use plimsoll_testing::etcd::EtcdServer;
use plimsoll_testing::fleet::{metric, policy};
use plimsoll_testing::members::Members;
use plimsoll_testing::process::{Process, http, until};
use plimsoll_testing::turns::{IDLE, turn};

const LIMIT: u32 = 300;

/// Waits until a controller shows a value that is as wanted, with `label` in its labels.
fn until_shown(controller: &Process, name: &str, label: &str, wanted: impl Fn(f64) -> bool) {
    until(&format!("{name} to change"), || {
        let (_, page) = http(controller.address("admin"), "GET", "/metrics", &[]).ok()?;
        (page.contains(name) && wanted(metric(&page, name, label))).then_some(())
    });
}

#[test]
fn faults_of_members_and_store() {
    let _turn = turn(IDLE);
    let good = policy(LIMIT, "shadow", false);
    let test = "outages::store::faults_of_members_and_store";
    let Some(mut members) = Members::start(test, 2, &good) else {
        return;
    };
    let leader = members.until_led();
    let standby = 1 - leader;
    let leading = "plimsoll_member_leading";
    until_shown(&members.controllers[leader], leading, "", |it| it == 1.0);
    until_shown(&members.controllers[standby], leading, "", |it| it == 0.0);

    let differ = "plimsoll_members_files_differ";
    members.write(standby, "policy.yaml", &policy(LIMIT + 1, "shadow", false));
    until_shown(&members.controllers[leader], differ, "", |it| it == 1.0);
    members.write(standby, "policy.yaml", &good);
    until_shown(&members.controllers[leader], differ, "", |it| it == 0.0);

    let (endpoints, failing) = ("plimsoll_store_endpoints", "state=\"failing\"");
    members.store[0].stop();
    until_shown(&members.controllers[leader], endpoints, failing, |it| {
        it == 1.0
    });
    members.store[1].stop();
    let confirmed = "plimsoll_lead_confirmed";
    until_shown(&members.controllers[leader], confirmed, "", |it| it == 0.0);
    // Without a majority nothing takes over from a leader that ends.
    members.controllers[leader].kill_9();
    until_shown(&members.controllers[standby], leading, "", |it| it == 0.0);
    members.store[..2].iter_mut().for_each(EtcdServer::start);
    for name in [leading, confirmed, "plimsoll_members"] {
        until_shown(&members.controllers[standby], name, "", |it| it == 1.0);
    }
    until_shown(&members.controllers[standby], endpoints, failing, |it| {
        it == 0.0
    });
    members.restart(leader);
    until_shown(
        &members.controllers[standby],
        "plimsoll_members",
        "",
        |it| it == 2.0,
    );
}
