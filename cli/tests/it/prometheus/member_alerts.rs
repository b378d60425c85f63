//! The alerts about several controllers, on a real cluster of etcd: each fires on its fault and is resolved when the fault
//! is over.

use std::collections::BTreeSet;

use plimsoll_testing::etcd::EtcdServer;
use plimsoll_testing::fleet::policy;
use plimsoll_testing::members::Members;
use plimsoll_testing::turns::{IDLE, turn};

use super::alerts::{Alerts, OF_MEMBERS};

const TEST: &str = "prometheus::member_alerts::member_alerts_fire_and_are_resolved";
const LIMIT: u32 = 300;

#[test]
fn member_alerts_fire_and_are_resolved() {
    let _turn = turn(IDLE);
    let good = policy(LIMIT, "shadow", false);
    let Some(mut members) = Members::start(TEST, 2, &good) else {
        return;
    };
    let admin = members.controllers.iter().map(|it| it.address("admin"));
    let Some(mut alerts) = Alerts::of(TEST, admin.collect()) else {
        return;
    };
    let leader = members.until_led();
    let standby = 1 - leader;

    members.write(standby, "policy.yaml", &policy(LIMIT + 1, "shadow", false));
    alerts.until_firing(&["PlimsollMemberFilesDiffer"]);
    members.write(standby, "policy.yaml", &good);
    alerts.until_resolved(&["PlimsollMemberFilesDiffer"]);

    members.store[0].stop();
    alerts.until_firing(&["PlimsollStoreEndpointFailing"]);
    members.store[1].stop();
    alerts.until_firing(&["PlimsollLeadUnconfirmed"]);
    // Without a majority nothing takes over from a leader that ends.
    members.controllers[leader].kill_9();
    alerts.until_firing(&["PlimsollNoLeader"]);
    members.store[..2].iter_mut().for_each(EtcdServer::start);
    alerts.until_resolved(&[
        "PlimsollNoLeader",
        "PlimsollLeadUnconfirmed",
        "PlimsollStoreEndpointFailing",
    ]);

    alerts.until_firing(&["PlimsollMembersMissing"]);
    members.restart(leader);
    alerts.until_resolved(&["PlimsollMembersMissing"]);

    let missing: BTreeSet<&str> = OF_MEMBERS
        .into_iter()
        .filter(|alert| !alerts.fired.contains(*alert))
        .collect();
    assert!(missing.is_empty(), "{missing:?} did not fire");
}
