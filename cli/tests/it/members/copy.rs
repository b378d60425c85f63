//! The state of a controller moves from a directory to a store, and back.

use std::path::Path;

use plimsoll_testing::etcd::start;
use plimsoll_testing::fleet::{BUCKET, TENANTS, policy, restart_controller, start_controller};
use plimsoll_testing::process::{Process, http_get, run, succeed};
use plimsoll_testing::turns::{IDLE, turn};
use serde_json::Value;

fn mode(controller: &Process) -> Value {
    let status = http_get(controller.address("admin"), "/status").1;
    let status: Value = serde_json::from_str(&status).unwrap();
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
    let admin = format!("http://{}", controller.address("admin"));
    let promote = [
        "rollout", "promote", BUCKET, "--to", "enforce", "--force", "--reason", "x",
    ];
    succeed(&[&promote[..], &["--controller", &admin]].concat());
    let state = directory.path().join("state");
    let other = tempfile::tempdir().unwrap();
    let back = other.path().join("state");
    let copy = |from: &str, to: &str| run(&["state", "copy", from, to]);
    let text = |path: &Path| path.display().to_string();

    let refused = copy(&text(&state), &url);
    assert_eq!(refused.status.code(), Some(1), "the controller runs");
    assert!(controller.terminate().success());
    assert!(copy(&text(&state), &url).status.success());
    let refused = copy(&text(&state), &url);
    let refused = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.contains("a state is there already"), "{refused}");
    assert!(copy(&url, &text(&back)).status.success());
    for name in ["policy.yaml", "tenants.yaml"] {
        std::fs::copy(directory.path().join(name), other.path().join(name)).unwrap();
    }
    let controller = restart_controller(&other);
    assert_eq!(mode(&controller), "enforce");
}
