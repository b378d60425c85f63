//! The alerts about exact quotas, evaluated by a real Prometheus server: each fires on its fault and is resolved when the
//! fault is over.

use std::fs;

use plimsoll_testing::process::{Process, http, until};
use plimsoll_testing::turns::{IDLE, turn};
use rustix::process::Resource;

use super::admin::send;
use crate::prometheus::alerts::{Alerts, OF_QUOTAS};

const FREE: [&str; 4] = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

#[test]
fn failing_store_alert_fires_until_disk_works() {
    let _turn = turn(IDLE);
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data").display().to_string();
    let server = Process::start(
        &[
            &["quota", "--data", &data, "--durability", "always"],
            &FREE[..],
        ]
        .concat(),
    );
    let test = "quota::alerts::failing_store_alert_fires_until_disk_works";
    let Some(mut alerts) = Alerts::of(test, vec![server.address("admin")]) else {
        return;
    };

    let reduce = || {
        send(
            server.address("listen"),
            &[b"RL.REDUCE", b"a", b"10", b"3600"],
        )
    };
    assert_eq!(reduce(), ":10");
    server.limit(Resource::Fsize, Some(0));
    until("the store to fail", || {
        reduce().starts_with("-UNAVAILABLE").then_some(())
    });
    alerts.until_firing(&[OF_QUOTAS[0]]);
    server.limit(Resource::Fsize, None);
    alerts.until_resolved(&[OF_QUOTAS[0]]);
    assert!(
        reduce().starts_with(':'),
        "it serves again without a restart"
    );
}

#[test]
fn missing_store_alert_fires_until_its_return() {
    let _turn = turn(IDLE);
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).display().to_string();
    let (data, policy, state) = (path("data"), path("policy.yaml"), path("state"));
    let quota = "quotas: { calls: { max: 1000000, refill: 1, every: 1h, on_store_error: allow } }";
    let bucket = "buckets: { checkout: { limit: 1000, mode: enforce, quotas: [calls] } }";
    fs::write(
        &policy,
        format!("{quota}\n{bucket}\nrollout: {{ require_gates: false }}\n"),
    )
    .unwrap();

    let start = |listen: &str| {
        let server = [
            "quota",
            "--data",
            &data,
            "--admin",
            "127.0.0.1:0",
            "--listen",
            listen,
        ];
        Process::start(&server)
    };
    let mut store = start("127.0.0.1:0");
    let address = store.address("listen").to_string();
    let controller = ["controller", "--policy", &policy, "--state-dir", &state];
    let controller = Process::start(&[&controller[..], &FREE].concat());
    let url = |process: &Process| format!("http://{}", process.address("listen"));
    let (upper, location) = (url(&controller), format!("plimsoll://{address}"));
    let aggregator = Process::start(&[&["aggregator", "--controller", &upper], &FREE[..]].concat());
    let lower = url(&aggregator);
    let of_service = [
        "service",
        "--aggregator",
        &lower,
        "--quota-store",
        &location,
        "--listen",
        "127.0.0.1:0",
    ];
    let service = Process::start(
        &[
            &of_service[..],
            &["--buckets", "checkout", "--quota-timeout", "5s"],
        ]
        .concat(),
    );
    let asked = || {
        http(service.address("listen"), "GET", "/checkout", &[])
            .ok()
            .map(|(code, _)| code)
    };
    let taken = || {
        let (_, page) = http(store.address("admin"), "GET", "/metrics", &[]).ok()?;
        page.lines().find_map(|line| {
            let line = line.strip_prefix(
                "plimsoll_quota_operations_total{command=\"take\",result=\"granted\"} ",
            )?;
            (line != "0").then_some(())
        })
    };
    until("the service to ask the store", || {
        (asked() == Some(200)).then(taken).flatten()
    });
    let test = "quota::alerts::missing_store_alert_fires_until_its_return";
    let Some(mut alerts) = Alerts::of(test, vec![service.address("listen")]) else {
        return;
    };

    store.kill_9();
    until("a decision without the store", || {
        let (_, page) = http(service.address("listen"), "GET", "/metrics", &[]).ok()?;
        let is_degraded = page.lines().any(|line| {
            line.starts_with("plimsoll_quota_degraded_total{policy=\"allow\"")
                && !line.ends_with(" 0")
        });
        (asked() == Some(200) && is_degraded).then_some(())
    });
    // Requests continue, because a constant counter fires no alert.
    let load = [
        "load",
        "--target",
        &format!("{}/checkout", url(&service)),
        "--rps",
        "20",
    ];
    let load = Process::spawn(&load);
    alerts.until_firing(&[OF_QUOTAS[1]]);
    let _store = start(&address);
    alerts.until_resolved(&[OF_QUOTAS[1]]);
    drop(load);
}
