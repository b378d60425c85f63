//! Faults of the store that an operator repairs while controllers run: a node that is lost for good, a compaction, and a
//! value that no controller has written.

use plimsoll_testing::etcd::{replace, start};
use plimsoll_testing::fleet::{BUCKET, controller_on, policy};
use plimsoll_testing::members::Members;
use plimsoll_testing::process::{http, message, until};
use plimsoll_testing::turns::{IDLE, turn};
use serde_json::json;

use super::{PROMOTE, operate, until_later};

/// The controllers have the address of the lost node, and not that of its successor.
#[test]
fn replaced_node_and_compaction_cost_nothing() {
    let _turn = turn(IDLE);
    let test = "replaced_node_and_compaction_cost_nothing";
    let started = Members::start(test, 2, &policy(100, "shadow", false));
    let Some(mut members) = started else { return };
    let first = members.until_led();
    let epoch = until_later(&members, 0);
    replace(&mut members.store, 0);
    members.store[1].compact();
    // The successor is half of the majority that is left.
    members.store[2].stop();
    until("the lead to be confirmed again", || {
        let status = members.status(first)?;
        (status["members"]["confirmed"] == true).then_some(())
    });
    operate(&members, &PROMOTE);
    // A node that is busy may answer the first save too late.
    until("the promotion to be saved", || {
        members.status(first)?["state_unsaved"]
            .is_null()
            .then_some(())
    });
    members.store[1].compact();
    members.controllers[first].kill_9();
    let second = members.until_led_without(first);
    until_later(&members, epoch);
    let status = members.status(second).unwrap();
    assert_eq!(status["buckets"][BUCKET]["mode"], "enforce");
    assert_eq!(status["state_lost"], json!(null));
}

#[test]
fn foreign_leader_is_named() {
    let _turn = turn(IDLE);
    let Some(store) = start("foreign_leader_is_named", &[]) else {
        return;
    };
    // `plimsoll/leader` and `foreign`.
    let key = json!({ "key": "cGxpbXNvbGwvbGVhZGVy" });
    let foreign = json!({ "key": key["key"], "value": "Zm9yZWlnbg==" });
    store.ask("/v3/kv/put", &foreign);
    let folder = tempfile::tempdir().unwrap();
    let text = policy(100, "shadow", false);
    std::fs::write(folder.path().join("policy.yaml"), text).unwrap();
    let url = format!("etcd://{}/plimsoll", store.address);
    let controller = controller_on(&folder, &["--store", &url]);
    controller.wait_for(|line| {
        message(line).is_some_and(|text| text.starts_with("no controller can lead: none has"))
    });
    store.ask("/v3/kv/deleterange", &key);
    until("the controller to lead", || {
        let answer = http(controller.address("admin"), "GET", "/lead", &[]).ok()?;
        (answer.0 == 200).then_some(())
    });
}
