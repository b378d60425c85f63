//! A controller that has lost its state, or has an older one, on real processes.

use std::fs;
use std::net::TcpListener;

use plimsoll_testing::fleet::{BUCKET, Fleet, policy};
use plimsoll_testing::process::{FREE_PORT, outcome, succeed, until, until_true};
use plimsoll_testing::turns::{IDLE, turn};
use serde_json::Value;

fn operate(fleet: &Fleet, args: &[&str]) -> String {
    succeed(&[args, &["--controller", &fleet.controller.url("admin")]].concat())
}

/// Returns the output of `plimsoll status`, which has a problem to show.
fn shown(fleet: &Fleet) -> String {
    let (code, text) = outcome(&["status", "--controller", &fleet.controller.url("admin")]);
    assert_eq!(code, 1);
    text
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
    operate(fleet, &["kill", "on", "--reason", "drill"]);
    operate(fleet, &["kill", "off"]);
    let promote = [
        "rollout", "promote", BUCKET, "--to", "enforce", "--force", "--reason", "drill",
    ];
    operate(fleet, &promote);
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
    until_true("both aggregators to enforce", || {
        enforces_everywhere(&fleet)
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
    let output = operate(&fleet, &["kill", "off"]);
    assert!(
        output.contains("processes that claimed a kill follow the controller again"),
        "{output}"
    );
    until_clients(&fleet, true);
    until_true("both aggregators to enforce", || {
        enforces_everywhere(&fleet)
    });
}

fn enforces_everywhere(fleet: &Fleet) -> bool {
    let mut zones = fleet.zones.iter();
    zones.all(|zone| {
        let status = zone.aggregator.status().to_string();
        status.contains("\"mode\":\"enforce\"")
    })
}

#[test]
fn start_that_fails_leaves_no_state() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    fs::write(path("policy.yaml"), policy(100, "enforce", false)).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = taken.local_addr().unwrap().to_string();
    let (file, state) = (path("policy.yaml"), path("state"));
    let files = ["controller", "--policy", &file, "--state-dir", &state];
    let ports = ["--listen", FREE_PORT, "--admin", &admin];
    let (_, text) = outcome(&[&files[..], &ports].concat());
    assert!(text.contains("--admin"), "{text}");
    assert!(!fs::exists(&state).unwrap());
}
