//! Two controllers on copies of one state directory: every process that sees both reports it, and
//! one rule decides which of them leads.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use plimsoll_testing::fleet::{metric, policy};
use plimsoll_testing::process::{Process, http_get, message, run, until};
use plimsoll_testing::turns::{IDLE, turn};
use serde_json::Value;
use tempfile::TempDir;

/// Two controllers at one epoch; the first of them leads.
struct Twins {
    controllers: [Process; 2],
    directory: TempDir,
}

fn controller(directory: &Path, state: &str) -> Process {
    let path = |name: &str| directory.join(name).display().to_string();
    let (policy, state) = (path("policy.yaml"), path(state));
    let files = ["controller", "--policy", &policy, "--state-dir", &state];
    Process::start(
        &[
            &files[..],
            &["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"],
        ]
        .concat(),
    )
}

fn aggregator(name: &str, controller: SocketAddr) -> Process {
    let parent = format!("http://{controller}");
    let common = [
        "aggregator",
        "--zone",
        "a",
        "--name",
        name,
        "--controller",
        &parent,
    ];
    Process::start(
        &[
            &common[..],
            &["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"],
        ]
        .concat(),
    )
}

fn status(process: &Process) -> Value {
    serde_json::from_str(&http_get(process.address("admin"), "/status").1).unwrap()
}

fn metric_of(process: &Process, port: &str, name: &str) -> f64 {
    metric(&http_get(process.address(port), "/metrics").1, name, "")
}

/// Returns the output of `plimsoll status`.
fn shown(controller: &Process) -> String {
    let admin = format!("http://{}", controller.address("admin"));
    String::from_utf8(run(&["status", "--controller", &admin]).stdout).unwrap()
}

impl Twins {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(
            directory.path().join("policy.yaml"),
            policy(300, "enforce", false),
        )
        .unwrap();
        let mut first = controller(directory.path(), "one");
        assert!(first.terminate().success());
        let state = |name: &str| directory.path().join(name);
        fs::create_dir(state("two")).unwrap();
        fs::copy(
            state("one").join("controller.state"),
            state("two").join("controller.state"),
        )
        .unwrap();
        let mut controllers = ["one", "two"].map(|name| controller(directory.path(), name));
        assert_eq!(
            status(&controllers[0])["epoch"],
            status(&controllers[1])["epoch"]
        );
        controllers.sort_by_key(|controller| {
            std::cmp::Reverse(status(controller)["instance"].as_str().unwrap().to_owned())
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
    let targets = aggregators
        .each_ref()
        .map(|process| format!("http://{}", process.address("listen")));
    let targets = targets.join(",");
    let service = [
        "service",
        "--zone",
        "a",
        "--name",
        "both",
        "--listen",
        "127.0.0.1:0",
    ];
    let service = Process::start(
        &[
            &service[..],
            &["--aggregator", &targets, "--buckets", "checkout"],
        ]
        .concat(),
    );

    let conflict = "plimsoll_controller_conflict";
    until("the client to see both", || {
        (metric_of(&service, "listen", conflict) == 1.0).then_some(())
    });
    until("the aggregator of the other to see both", || {
        (metric_of(&aggregators[1], "admin", conflict) == 1.0).then_some(())
    });
    until("the other to see both", || {
        (metric_of(other, "admin", conflict) == 1.0).then_some(())
    });
    let seen = &status(other)["other_controllers"][0];
    assert_eq!(seen["instance"], status(leader)["instance"]);
    assert_eq!(
        status(&aggregators[1])["other_controllers"][0]["through"],
        "client a/demo/both"
    );
    for process in [other, &aggregators[1]] {
        process.wait_for(|line| {
            message(line).is_some_and(|text| text.contains("two controllers run at one epoch"))
        });
    }
    assert!(
        shown(other).contains("a second controller runs: "),
        "{}",
        shown(other)
    );
    // A client's claim is shown, and stops no controller.
    assert_eq!(status(other)["lost_lead"], Value::Null);
    assert_eq!(
        metric_of(leader, "admin", conflict),
        0.0,
        "everything that speaks to it follows it"
    );
    drop(twins.directory);
}
