//! `plimsoll-bench streams`: every client connects, applies each decision and counts its requests.

use std::process::Command;
use std::time::Duration;

use plimsoll_testing::fleet::metric;
use plimsoll_testing::process::{Process, binary, free_addresses, http_get, until};

use crate::books::{self, Run};

const STREAMS: u64 = 200;

#[test]
fn every_client_connects_applies_decisions_and_counts() {
    // The aggregator needs the address before a controller listens there.
    let controller = free_addresses::<1>()[0].to_string();
    let uplink = format!("http://{controller}");
    let free = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let aggregator =
        Process::start(&[&["aggregator", "--controller", &uplink], &free[..]].concat());
    let target = format!("http://{}={STREAMS}", aggregator.address("listen"));
    let pid = aggregator.id().to_string();
    let args = [
        "streams",
        "--aggregator",
        &target,
        "--pid",
        &pid,
        "--listen",
        &controller,
        "--every",
        "1s",
    ];
    let mut tool = Process::spawn_program("plimsoll-bench", &args);
    let line = until("all clients to apply a decision", || {
        let last = tool.output_lines().pop()?;
        let figures = &last["aggregators"][0];
        (figures["connected"] == STREAMS && figures["decision"]["applied"] == STREAMS)
            .then_some(last)
    });
    let figures = &line["aggregators"][0];
    assert_eq!(figures["decision"]["due"], STREAMS, "{line}");
    for figure in [
        "/decision/p50_ms",
        "/up_bytes_per_client_s",
        "/down_bytes_per_client_s",
        "/resident_bytes",
    ] {
        assert!(
            figures.pointer(figure).unwrap().as_f64() > Some(0.0),
            "{figure}: {line}"
        );
    }
    assert!(
        figures["decision"]["p50_ms"].as_f64() <= figures["decision"]["p99_ms"].as_f64(),
        "{line}"
    );
    assert!(line["decided"].as_u64() > Some(0), "{line}");
    let page = http_get(aggregator.address("admin"), "/metrics").1;
    assert_eq!(metric(&page, "plimsoll_children", ""), STREAMS as f64);
    assert!(
        metric(&page, "plimsoll_report_interval_seconds", "") >= 0.1,
        "{page}"
    );
    tool.terminate();
    until("the clients to disconnect", || {
        let page = http_get(aggregator.address("admin"), "/metrics").1;
        (metric(&page, "plimsoll_children", "") == 0.0).then_some(())
    });
}

#[test]
fn counts_balance_after_tiers_are_killed() {
    let books = books::run(&Run {
        clients: 40,
        lasts: Duration::from_secs(9),
        kills: true,
    });
    assert!(books.balance(), "{books:?}");
    assert!(
        books.counted >= books.decided / 2.0 && books.unconfirmed > 0.0,
        "{books:?}"
    );
    let books = books::run(&Run {
        clients: 40,
        lasts: Duration::from_secs(2),
        kills: false,
    });
    assert!(
        books.balance() && books.counted == books.decided && books.decided > 0.0,
        "{books:?}"
    );
}

#[test]
fn few_open_files_give_a_usage_hint() {
    let tool = binary("plimsoll-bench");
    let tool = tool.display();
    let command =
        format!("ulimit -n 200; exec {tool} streams --aggregator http://127.0.0.1:9=1000");
    let ended = Command::new("sh").args(["-c", &command]).output().unwrap();
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("may open 200 files") && stderr.contains("ulimit -n 1064"),
        "{stderr}"
    );
}
