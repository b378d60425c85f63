//! Aggregators below aggregators, as real processes: counts travel up to the controller and drop ratios down,
//! and an aggregator whose place in the tree is invalid reports the reason and keeps retrying.

use std::fs;
use std::net::{SocketAddr, TcpListener};

use serde_json::Value;
use tempfile::TempDir;

use crate::fleet::{BUCKET, LOAD, TENANTS, metric, policy};
use crate::process::{Process, http_get, message, until};
use crate::turns::{IDLE, turn};

const LIMIT: u32 = 200;
const OFFERED: u32 = 1_000;

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
    let flags = ["aggregator", "--zone", "a", "--name", name, "--controller", &parent];
    Process::start(&[&flags[..], &["--listen", &listen, "--admin", "127.0.0.1:0"]].concat())
}

fn service(name: &str, parent: SocketAddr) -> Process {
    let parent = format!("http://{parent}");
    let flags = ["service", "--zone", "a", "--name", name, "--aggregator", &parent, "--buckets", BUCKET];
    Process::start(&[&flags[..], &["--listen", "127.0.0.1:0"]].concat())
}

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// An address with a free port.
fn free() -> SocketAddr {
    TcpListener::bind(any()).unwrap().local_addr().unwrap()
}

fn metric_of(process: &Process, name: &str, label: &str) -> f64 {
    metric(&http_get(process.address("admin"), "/metrics").1, name, label)
}

/// Waits until a process logs why its parent rejects it, and returns the text that contains `reason`.
fn rejection(process: &Process, reason: &str) -> String {
    let line =
        process.wait_for(|line| line["fields"]["why"].as_str().is_some_and(|why| why.contains(reason)));
    assert!(message(&line).unwrap().contains("keeps the directives it has"), "{line}");
    line["fields"]["why"].as_str().unwrap().to_owned()
}

#[test]
fn counts_and_ratios_pass_through_two_aggregators() {
    let _turn = turn(OFFERED);
    let directory = tempfile::tempdir().unwrap();
    let controller = controller(&directory);
    let upper = aggregator("upper", controller.address("listen"), any());
    let lower = aggregator("lower", upper.address("listen"), any());
    // One service below both aggregators, and one below the upper one alone.
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
    let (targets, rps) = (targets.join(","), OFFERED.to_string());
    let mut load = Process::spawn(&[&LOAD[..], &["--target", &targets, "--rps", &rps]].concat());
    until("both services to refuse", || {
        let refused = |service| metric(&page(service), "plimsoll_decisions_total", "result=\"drop\"");
        services.iter().all(|service| refused(service) > 100.0).then_some(())
    });
    until("both aggregators to get directives", || {
        let on_hold = |aggregator| metric_of(aggregator, "plimsoll_zone_on_hold", BUCKET);
        (on_hold(&upper) + on_hold(&lower) == 0.0).then_some(())
    });
    let hold = |aggregator| metric_of(aggregator, "plimsoll_zone_hold", BUCKET);
    until("the lower aggregator to get a part of the upper one's limit", || {
        let (lower, upper) = (hold(&lower), hold(&upper));
        (0.25 * upper < lower && lower < 0.75 * upper).then_some(())
    });
    let status: Value = serde_json::from_str(&http_get(upper.address("admin"), "/status").1).unwrap();
    let names = [&status["clients"][0]["name"], &status["aggregators"][0]["name"]];
    assert_eq!(names, ["beside", "lower"], "{status}");
    until("the limit to be admitted", || (decided("result=\"admit\"") > f64::from(LIMIT)).then_some(()));
    assert!(load.terminate().success());

    until("all requests to be counted", || {
        let (counted, decided) = (counted(), decided(""));
        assert!(counted <= decided, "{counted} of {decided}: a request was counted twice");
        (counted == decided).then_some(())
    });
    let unconfirmed = |process: &Process| metric_of(process, "plimsoll_counts_unconfirmed_total", "");
    assert_eq!([&controller, &upper, &lower].map(unconfirmed), [0.0; 3]);
}

#[test]
fn aggregators_in_a_loop_are_rejected_and_retry() {
    let _turn = turn(IDLE);
    let (one, other) = (free(), free());
    let aggregators = [aggregator("one", other, one), aggregator("other", one, other)];
    // The one that connects second is rejected.
    let refused =
        |process: &Process| metric_of(process, "plimsoll_streams_rejected_total", "reason=\"loop\"");
    until("the loop to be detected more than once", || {
        (aggregators.iter().map(refused).sum::<f64>() >= 3.0).then_some(())
    });
    let by = aggregators.iter().position(|process| refused(process) > 0.0).unwrap();
    let why = rejection(&aggregators[1 - by], "loop");
    assert!(why.contains("point one of them at a controller"), "{why}");
}

#[test]
fn only_the_lowest_aggregator_of_a_chain_that_is_too_deep_is_rejected() {
    let _turn = turn(IDLE);
    let directory = tempfile::tempdir().unwrap();
    let controller = controller(&directory);
    let mut parent = controller.address("listen");
    let mut chain = Vec::new();
    for at in 0..5 {
        let next = aggregator(&format!("aggregator-{at}"), parent, any());
        parent = next.address("listen");
        // One after the other, so that each knows its depth below the controller.
        until("its first directives", || (metric_of(&next, "plimsoll_epoch", "") > 0.0).then_some(()));
        chain.push(next);
    }
    let sixth = aggregator("aggregator-5", parent, any());
    let why = rejection(&sixth, "exceed the maximum");
    assert!(why.contains("6 aggregators") && why.contains("nearer to the controller"), "{why}");
    let label = "reason=\"too_deep\"";
    until("a second attempt", || {
        (metric_of(&chain[4], "plimsoll_streams_rejected_total", label) >= 2.0).then_some(())
    });
    for aggregator in &chain {
        assert_eq!(metric_of(aggregator, "plimsoll_uplink_connected", ""), 1.0);
    }
}
