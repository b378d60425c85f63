//! Aggregators below others, as real processes: what clients decide at the bottom reaches the controller at the top, its
//! ratios reach them, and who cannot stand where it was told to says so and goes on trying.

use std::fs;
use std::net::{SocketAddr, TcpListener};

use serde_json::Value;
use tempfile::TempDir;

use crate::fleet::{BUCKET, TENANTS, metric, policy};
use crate::process::{Process, http_get, message, until};
use crate::processes::alone;

const LIMIT: u32 = 200;

fn controller(directory: &TempDir) -> Process {
    fs::write(directory.path().join("policy.yaml"), policy(LIMIT, "enforce", false)).unwrap();
    fs::write(directory.path().join("tenants.yaml"), TENANTS).unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (policy, tenants, state) = (path("policy.yaml"), path("tenants.yaml"), path("state"));
    let files = ["controller", "--policy", &policy, "--tenants", &tenants, "--state-dir", &state];
    Process::start(&[&files[..], &["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]].concat())
}

fn aggregator(name: &str, parent: SocketAddr, listen: SocketAddr) -> Process {
    let (parent, listen) = (format!("http://{parent}"), listen.to_string());
    let who = ["aggregator", "--zone", "a", "--name", name, "--controller", &parent];
    Process::start(&[&who[..], &["--listen", &listen, "--admin", "127.0.0.1:0"]].concat())
}

fn service(name: &str, parent: SocketAddr) -> Process {
    let parent = format!("http://{parent}");
    let who = ["service", "--zone", "a", "--name", name, "--aggregator", &parent, "--buckets", BUCKET];
    Process::start(&[&who[..], &["--listen", "127.0.0.1:0"]].concat())
}

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A port that nobody has at the moment.
fn free() -> SocketAddr {
    TcpListener::bind(any()).unwrap().local_addr().unwrap()
}

fn metric_of(process: &Process, name: &str, label: &str) -> f64 {
    metric(&http_get(process.address("admin"), "/metrics").1, name, label)
}

/// The reason why a process cannot reach its parent, once it is one of `reason`.
fn says(process: &Process, reason: &str) -> String {
    let line =
        process.wait_for(|line| line["fields"]["why"].as_str().is_some_and(|why| why.contains(reason)));
    assert!(message(&line).unwrap().contains("goes on with what it holds"), "{line}");
    line["fields"]["why"].as_str().unwrap().to_owned()
}

#[test]
fn counts_go_up_and_ratios_come_down_through_two_aggregators() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let controller = controller(&directory);
    let upper = aggregator("upper", controller.address("listen"), any());
    let lower = aggregator("lower", upper.address("listen"), any());
    // One below both, and one below the upper alone.
    let services =
        [("below", &lower), ("beside", &upper)].map(|(name, parent)| service(name, parent.address("listen")));
    let page = |service: &Process| http_get(service.address("listen"), "/metrics").1;
    let decided = |result: &str| -> f64 {
        services.iter().map(|service| metric(&page(service), "plimsoll_decisions_total", result)).sum()
    };
    let counted = || -> f64 {
        let status: Value =
            serde_json::from_str(&http_get(controller.address("admin"), "/status").1).unwrap();
        status["buckets"][BUCKET]["offered"].as_f64().unwrap()
    };

    let targets = services.each_ref().map(|service| format!("http://{}/{BUCKET}", service.address("listen")));
    let mut load = Process::spawn(&["load", "--target", &targets.join(","), "--rps", "1000"]);
    until("both services to refuse", || {
        let refused = |service| metric(&page(service), "plimsoll_decisions_total", "result=\"drop\"");
        services.iter().all(|service| refused(service) > 100.0).then_some(())
    });
    until("both to be led", || {
        let on_hold = |aggregator| metric_of(aggregator, "plimsoll_zone_on_hold", BUCKET);
        (on_hold(&upper) + on_hold(&lower) == 0.0).then_some(())
    });
    let hold = |aggregator| metric_of(aggregator, "plimsoll_zone_hold", BUCKET);
    until("the lower one to have a part of what the upper one lives on", || {
        let (lower, upper) = (hold(&lower), hold(&upper));
        (0.25 * upper < lower && lower < 0.75 * upper).then_some(())
    });
    let status: Value = serde_json::from_str(&http_get(upper.address("admin"), "/status").1).unwrap();
    let names = [&status["clients"][0]["name"], &status["aggregators"][0]["name"]];
    assert_eq!(names, ["beside", "lower"], "{status}");
    assert!(load.terminate().success());

    until("everything to be counted", || {
        let (counted, decided) = (counted(), decided(""));
        assert!(counted <= decided, "{counted} of {decided}: something was counted twice");
        (counted == decided).then_some(())
    });
    let given_up = |process: &Process| metric_of(process, "plimsoll_counts_unconfirmed_total", "");
    assert_eq!([&controller, &upper, &lower].map(given_up), [0.0; 3]);
    assert!(decided("result=\"admit\"") > f64::from(LIMIT), "not everything was refused");
}

#[test]
fn two_that_stand_below_each_other_are_told_and_go_on_trying() {
    let _alone = alone();
    let (one, other) = (free(), free());
    let aggregators = [aggregator("one", other, one), aggregator("other", one, other)];
    // Which of them is refused depends on who comes first.
    let refused = |process: &Process| metric_of(process, "plimsoll_streams_rejected_total", "reason=\"loop\"");
    until("a loop to be found, and found again", || {
        (aggregators.iter().map(refused).sum::<f64>() >= 3.0).then_some(())
    });
    let by = aggregators.iter().position(|process| refused(process) > 0.0).unwrap();
    let why = says(&aggregators[1 - by], "loop");
    assert!(why.contains("point one of them at a controller"), "{why}");
}

#[test]
fn a_chain_too_long_is_refused_at_its_lowest_and_the_others_go_on() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let controller = controller(&directory);
    let mut parent = controller.address("listen");
    let mut chain = Vec::new();
    for at in 0..5 {
        let next = aggregator(&format!("aggregator-{at}"), parent, any());
        parent = next.address("listen");
        // One after the other, so that each knows how far it is to the controller.
        until("it to be led", || (metric_of(&next, "plimsoll_epoch", "") > 0.0).then_some(()));
        chain.push(next);
    }
    let sixth = aggregator("aggregator-5", parent, any());
    let why = says(&sixth, "are too many");
    assert!(why.contains("6 aggregators") && why.contains("nearer to the controller"), "{why}");
    let label = "reason=\"too_deep\"";
    until("it to try again", || {
        (metric_of(&chain[4], "plimsoll_streams_rejected_total", label) >= 2.0).then_some(())
    });
    for aggregator in &chain {
        assert_eq!(metric_of(aggregator, "plimsoll_uplink_connected", ""), 1.0);
    }
}
