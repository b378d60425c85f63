//! Peers that connect and stay silent, and a process that runs out of descriptors.

use std::net::TcpStream;

use plimsoll_testing::fleet::{Fleet, metric, policy};
use plimsoll_testing::process::{http, http_get, message};
use plimsoll_testing::turns::{IDLE, turn};
use rustix::process::{Resource, getrlimit};

#[test]
fn descriptor_shortage_is_reported_until_over() {
    let _turn = turn(IDLE);
    let fleet = Fleet::start(&policy(300, "enforce", false));
    let aggregator = &fleet.zones[0].aggregator;
    let raised = aggregator.wait_for(|line| message(line) == Some("limit of open files raised"));
    let hard = getrlimit(Resource::Nofile).maximum.unwrap();
    assert_eq!(raised["fields"]["limit"], hard);
    assert_eq!(raised["fields"]["children"], hard - 256);
    let (grpc, admin) = (aggregator.address("listen"), aggregator.address("admin"));
    aggregator.limit(Resource::Nofile, Some(aggregator.descriptors()));
    let waiting: Vec<TcpStream> = (0..5).map(|_| TcpStream::connect(grpc).unwrap()).collect();
    let failing = aggregator.wait_for(|line| {
        message(line).is_some_and(|text| text.starts_with("connections cannot be accepted"))
    });
    assert!(failing.to_string().contains("ulimit -n"), "{failing}");
    aggregator.limit(Resource::Nofile, Some(hard));
    aggregator.wait_for(|line| message(line) == Some("connections are accepted again"));
    let page = http_get(admin, "/metrics").1;
    let failures = metric(&page, "plimsoll_accept_failures_total", "port=\"grpc\"");
    assert!(failures >= 1.0, "{page}");
    assert_eq!(metric(&page, "plimsoll_accept_failing", ""), 0.0);
    assert_eq!(metric(&page, "plimsoll_descriptors_limit", ""), hard as f64);
    drop(waiting);
    // One line for all failures; connected children stayed connected.
    let lines = aggregator
        .log()
        .iter()
        .filter(|line| line.contains("connections cannot be accepted"))
        .count();
    assert_eq!(lines, 1);
    assert_eq!(metric(&page, "plimsoll_children", ""), 2.0);
    assert_eq!(http(admin, "GET", "/healthz", &[]).unwrap().0, 200);
}
