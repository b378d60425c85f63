//! The state of a controller moves from a directory to a store, and back.

use std::path::Path;

use plimsoll_testing::etcd::start;
use plimsoll_testing::fleet::{BUCKET, TENANTS, policy, restart_controller, start_controller};
use plimsoll_testing::process::{Process, outcome, succeed};
use plimsoll_testing::turns::{IDLE, turn};
use serde_json::Value;

use super::PROMOTE;

fn mode(controller: &Process) -> Value {
    let status = controller.status();
    assert_eq!(status["state_lost"], Value::Null);
    status["buckets"][BUCKET]["mode"].clone()
}

#[test]
fn state_is_copied_to_a_store_and_back() {
    let _turn = turn(IDLE);
    let Some(store) = start("state_is_copied_to_a_store_and_back", &[]) else {
        return;
    };
    let url = format!("etcd://{}/plimsoll", store.address);
    let directory = tempfile::tempdir().unwrap();
    let mut controller = start_controller(&directory, &policy(100, "shadow", false), TENANTS);
    let admin = controller.url("admin");
    succeed(&[&PROMOTE[..], &["--controller", &admin]].concat());
    let state = directory.path().join("state");
    let other = tempfile::tempdir().unwrap();
    let back = other.path().join("state");
    let copy = |from: &str, to: &str| outcome(&["state", "copy", from, to]);
    let text = |path: &Path| path.display().to_string();

    assert_eq!(copy(&text(&state), &url).0, 1, "the controller runs");
    assert!(controller.terminate().success());
    assert_eq!(copy(&text(&state), &url).0, 0);
    let (_, refused) = copy(&text(&state), &url);
    assert!(refused.contains("a state is there already"), "{refused}");
    assert_eq!(copy(&url, &text(&back)).0, 0);
    for name in ["policy.yaml", "tenants.yaml"] {
        std::fs::copy(directory.path().join(name), other.path().join(name)).unwrap();
    }
    let controller = restart_controller(&other);
    assert_eq!(mode(&controller), "enforce");
}
