//! Aggregators below aggregators, as real processes: counts travel up to the controller and drop
//! ratios down, and an aggregator in an invalid place of the tree reports the reason and keeps
//! retrying.

use std::net::SocketAddr;

use plimsoll_testing::fleet::{BUCKET, LOAD, TENANTS, metric, policy, start_controller};
use plimsoll_testing::process::{Process, http_get, until};
use plimsoll_testing::turns::turn;
use serde_json::Value;

const LIMIT: u32 = 200;
const OFFERED: u32 = 1_000;

fn aggregator(name: &str, parent: SocketAddr, listen: SocketAddr) -> Process {
    let (parent, listen) = (format!("http://{parent}"), listen.to_string());
    let flags = [
        "aggregator",
        "--zone",
        "a",
        "--name",
        name,
        "--controller",
        &parent,
    ];
    Process::start(&[&flags[..], &["--listen", &listen, "--admin", "127.0.0.1:0"]].concat())
}

fn service(name: &str, parent: SocketAddr) -> Process {
    let parent = format!("http://{parent}");
    let flags = [
        "service",
        "--zone",
        "a",
        "--name",
        name,
        "--aggregator",
        &parent,
        "--buckets",
        BUCKET,
    ];
    Process::start(&[&flags[..], &["--listen", "127.0.0.1:0"]].concat())
}

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn metric_of(process: &Process, name: &str, label: &str) -> f64 {
    metric(
        &http_get(process.address("admin"), "/metrics").1,
        name,
        label,
    )
}

#[test]
fn counts_and_ratios_pass_through_two_aggregators() {
    let _turn = turn(OFFERED);
    let directory = tempfile::tempdir().unwrap();
    let controller = start_controller(&directory, &policy(LIMIT, "enforce", false), TENANTS);
    let upper = aggregator("upper", controller.address("listen"), any());
    let lower = aggregator("lower", upper.address("listen"), any());
    // One service below both aggregators, and one below only the upper one.
    let services = [("below", &lower), ("beside", &upper)]
        .map(|(name, parent)| service(name, parent.address("listen")));
    let page = |service: &Process| http_get(service.address("listen"), "/metrics").1;
    let decided = |result: &str| -> f64 {
        services
            .iter()
            .map(|service| metric(&page(service), "plimsoll_decisions_total", result))
            .sum()
    };
    let counted = || -> f64 {
        let status: Value =
            serde_json::from_str(&http_get(controller.address("admin"), "/status").1).unwrap();
        status["buckets"][BUCKET]["offered"].as_f64().unwrap()
    };

    let targets = services
        .each_ref()
        .map(|service| format!("http://{}/{BUCKET}", service.address("listen")));
    let (targets, rps) = (targets.join(","), OFFERED.to_string());
    let mut load = Process::spawn(&[&LOAD[..], &["--target", &targets, "--rps", &rps]].concat());
    until("both services to refuse", || {
        let refused = |service| {
            metric(
                &page(service),
                "plimsoll_decisions_total",
                "result=\"drop\"",
            )
        };
        services
            .iter()
            .all(|service| refused(service) > 100.0)
            .then_some(())
    });
    until("both aggregators to get directives", || {
        let on_hold = |aggregator| metric_of(aggregator, "plimsoll_zone_on_hold", BUCKET);
        (on_hold(&upper) + on_hold(&lower) == 0.0).then_some(())
    });
    let hold = |aggregator| metric_of(aggregator, "plimsoll_zone_hold", BUCKET);
    until(
        "the lower aggregator to get a part of the upper one's limit",
        || {
            let (lower, upper) = (hold(&lower), hold(&upper));
            (0.25 * upper < lower && lower < 0.75 * upper).then_some(())
        },
    );
    let status: Value =
        serde_json::from_str(&http_get(upper.address("admin"), "/status").1).unwrap();
    let names = [
        &status["clients"][0]["name"],
        &status["aggregators"][0]["name"],
    ];
    assert_eq!(names, ["beside", "lower"], "{status}");
    until("the limit to be admitted", || {
        (decided("result=\"admit\"") > f64::from(LIMIT)).then_some(())
    });
    assert!(load.terminate().success());

    until("all requests to be counted", || {
        let (counted, decided) = (counted(), decided(""));
        assert!(
            counted <= decided,
            "{counted} of {decided}: a request was counted twice"
        );
        (counted == decided).then_some(())
    });
    let unconfirmed =
        |process: &Process| metric_of(process, "plimsoll_counts_unconfirmed_total", "");
    assert_eq!([&controller, &upper, &lower].map(unconfirmed), [0.0; 3]);
}
