//! A controller that has lost its state, or has an older one, on real processes.

use std::fs;
use std::net::TcpListener;

use plimsoll_testing::fleet::{BUCKET, Fleet, policy};
use plimsoll_testing::process::{run, succeed, until};
use plimsoll_testing::turns::{IDLE, turn};
use serde_json::Value;

use crate::operators::kill::{admin, kill, text};

fn operate(fleet: &Fleet, args: &[&str]) -> String {
    succeed(&[args, &["--controller", &admin(&fleet.controller)]].concat())
}

/// Returns the output of `plimsoll status`, which has a problem to show.
fn shown(fleet: &Fleet) -> String {
    let output = run(&["status", "--controller", &admin(&fleet.controller)]);
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until all clients enforce the mode, or none of them.
fn until_clients(fleet: &Fleet, applied: bool) -> Value {
    until("the clients to be heard", || {
        let status = fleet.status()?;
        let (clients, bucket) = (status["clients"].as_u64()?, &status["buckets"][BUCKET]);
        let unapplied = bucket["clients_unapplied"].as_u64()?;
        let all = fleet.services().count() as u64;
        (clients == all && unapplied == if applied { 0 } else { all }).then_some(status)
    })
}

fn kill_and_enforce(fleet: &Fleet) {
    let controller = admin(&fleet.controller);
    kill(&["on", "--reason", "drill", "--controller", &controller]);
    kill(&["off", "--controller", &controller]);
    operate(
        fleet,
        &[
            "rollout", "promote", BUCKET, "--to", "enforce", "--force", "--reason", "drill",
        ],
    );
}

#[test]
fn lost_and_older_states_keep_their_word() {
    let _turn = turn(IDLE);
    let mut fleet = Fleet::start(&policy(100, "enforce", false));
    until_clients(&fleet, true);
    let file = fleet.policy_path();
    let state = file.parent().unwrap().join("state");
    let saved = state.join("controller.state");
    let older = fs::read(&saved).unwrap();
    kill_and_enforce(&fleet);
    until_clients(&fleet, true);

    // The directory is lost: nothing stops enforcing.
    fleet.controller.kill_9();
    fs::remove_dir_all(&state).unwrap();
    fleet.restart_controller();
    let status = until_clients(&fleet, true);
    assert_eq!(status["buckets"][BUCKET]["mode"], "enforce");
    assert!(
        status["state_lost"]
            .as_str()
            .unwrap()
            .contains("no state was found"),
        "{status}"
    );
    assert!(shown(&fleet).contains("state lost: no state was found"));
    assert!(operate(&fleet, &["acknowledge-loss"]).starts_with("acknowledged: no state was found"));
    assert_eq!(fleet.status().unwrap()["state_lost"], Value::Null);
    until("both aggregators to enforce", || {
        mode_everywhere(&fleet, "enforce")
    });

    // An older state does not know the kill: clients stay in shadow, and status shows it.
    kill_and_enforce(&fleet);
    until_clients(&fleet, true);
    fleet.controller.kill_9();
    fs::write(&saved, &older).unwrap();
    fleet.restart_controller();
    let status = until_clients(&fleet, false);
    assert!(
        status["state_lost"]
            .as_str()
            .unwrap()
            .contains("this state ends at epoch"),
        "{status}"
    );
    let all = fleet.services().count();
    let metric = |name| fleet.controller_metric(name, "");
    assert_eq!(metric("plimsoll_state_lost"), 1.0);
    assert_eq!(metric("plimsoll_bucket_clients_unapplied"), all as f64);
    assert!(metric("plimsoll_kill_claims") >= 1.0);
    assert!(shown(&fleet).contains(&format!("{all} of {all} clients do not carry it out")));
    let output = kill(&["off", "--controller", &admin(&fleet.controller)]);
    assert!(
        output.contains("processes that claimed a kill follow the controller again"),
        "{output}"
    );
    until_clients(&fleet, true);
    until("both aggregators to enforce", || {
        mode_everywhere(&fleet, "enforce")
    });
}

fn mode_everywhere(fleet: &Fleet, mode: &str) -> Option<()> {
    let is_there = |zone| {
        plimsoll_testing::process::http_get(zone, "/status")
            .1
            .contains(&format!("\"mode\":\"{mode}\""))
    };
    fleet
        .zones
        .iter()
        .all(|zone| is_there(zone.aggregator.address("admin")))
        .then_some(())
}

#[test]
fn start_that_fails_leaves_no_state() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    fs::write(path("policy.yaml"), policy(100, "enforce", false)).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = taken.local_addr().unwrap().to_string();
    let (file, state) = (path("policy.yaml"), path("state"));
    let ended = run(&[
        "controller",
        "--policy",
        &file,
        "--state-dir",
        &state,
        "--listen",
        "127.0.0.1:0",
        "--admin",
        &admin,
    ]);
    assert!(
        text(&ended.stderr).contains("--admin"),
        "{}",
        text(&ended.stderr)
    );
    assert!(!fs::exists(&state).unwrap());
}
