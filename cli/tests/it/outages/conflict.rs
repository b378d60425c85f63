//! Two controllers on copies of one state directory: every process that sees both reports it, and
//! one rule decides which of them leads.

use std::fs;
use std::net::SocketAddr;

use plimsoll_testing::fleet::{controller_in, policy};
use plimsoll_testing::process::{FREE, FREE_PORT, Process, message, outcome, until_true};
use plimsoll_testing::turns::{IDLE, turn};
use serde_json::Value;
use tempfile::TempDir;

/// Two controllers at one epoch; the first of them leads.
struct Twins {
    controllers: [Process; 2],
    directory: TempDir,
}

/// Starts a controller in a folder of its own.
fn controller(directory: &TempDir, name: &str) -> Process {
    controller_in(&directory.path().join(name), FREE_PORT, FREE_PORT, &[])
}

fn aggregator(name: &str, controller: SocketAddr) -> Process {
    let parent = format!("http://{controller}");
    let place = ["--zone", "a", "--name", name, "--controller", &parent];
    Process::start(&[&["aggregator"], &place[..], &FREE].concat())
}

impl Twins {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["one", "two"] {
            fs::create_dir_all(path(name).join("state")).unwrap();
            let policy = policy(300, "enforce", false);
            fs::write(path(name).join("policy.yaml"), policy).unwrap();
        }
        assert!(controller(&directory, "one").terminate().success());
        let state = |name: &str| path(name).join("state/controller.state");
        fs::copy(state("one"), state("two")).unwrap();
        let mut controllers = ["one", "two"].map(|name| controller(&directory, name));
        assert_eq!(
            controllers[0].status()["epoch"],
            controllers[1].status()["epoch"]
        );
        controllers.sort_by_key(|controller| {
            std::cmp::Reverse(controller.status()["instance"].as_str().unwrap().to_owned())
        });
        Self {
            controllers,
            directory,
        }
    }
}

#[test]
fn shared_client_follows_one_controller() {
    let _turn = turn(IDLE);
    let twins = Twins::start();
    let [leader, other] = &twins.controllers;
    let aggregators = [
        aggregator("of-leader", leader.address("listen")),
        aggregator("of-other", other.address("listen")),
    ];
    let targets = aggregators.each_ref().map(|it| it.url("listen")).join(",");
    let place = ["--zone", "a", "--name", "both", "--aggregator", &targets];
    let serves = ["--listen", FREE_PORT, "--buckets", "checkout"];
    let service = Process::start(&[&["service"], &place[..], &serves].concat());
    let conflict = "plimsoll_controller_conflict";
    until_true("the client to see both", || {
        service.metric("listen", conflict, "") == 1.0
    });
    until_true("the aggregator of the other to see both", || {
        aggregators[1].metric("admin", conflict, "") == 1.0
    });
    until_true("the other to see both", || {
        other.metric("admin", conflict, "") == 1.0
    });
    let seen = &other.status()["other_controllers"][0];
    assert_eq!(seen["instance"], leader.status()["instance"]);
    assert_eq!(
        aggregators[1].status()["other_controllers"][0]["through"],
        "client a/demo/both"
    );
    for process in [other, &aggregators[1]] {
        process.wait_for(|line| {
            message(line).is_some_and(|text| text.contains("two controllers run at one epoch"))
        });
    }
    let (_, shown) = outcome(&["status", "--controller", &other.url("admin")]);
    assert!(shown.contains("a second controller runs: "), "{shown}");
    // A client's claim is shown, and stops no controller.
    assert_eq!(other.status()["lost_lead"], Value::Null);
    assert_eq!(
        leader.metric("admin", conflict, ""),
        0.0,
        "everything that speaks to it follows it"
    );
    drop(twins.directory);
}
