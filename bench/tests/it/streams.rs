//! The tool that opens many client streams: every client connects, hears each decision and counts.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use crate::books::{self, Run};
use crate::fleet::metric;
use crate::process::{Process, http_get, until};
use crate::processes::alone;

const STREAMS: u64 = 200;

/// A port that was free a moment ago: the aggregator must know where the controller will be.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn every_stream_connects_hears_decisions_and_counts() {
    let controller = free_address();
    let uplink = format!("http://{controller}");
    let free = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let aggregator = Process::start(&[&["aggregator", "--controller", &uplink], &free[..]].concat());
    let target = format!("http://{}={STREAMS}", aggregator.address("listen"));
    let pid = aggregator.id().to_string();
    let args = ["streams", "--aggregator", &target, "--pid", &pid, "--listen", &controller, "--every", "1s"];
    let mut tool = Process::spawn(&args);
    let line = until("all clients to hear a decision", || {
        let last = tool.output_lines().pop()?;
        let seen = &last["aggregators"][0];
        (seen["connected"] == STREAMS && seen["decision"]["heard"] == STREAMS).then_some(last)
    });
    let seen = &line["aggregators"][0];
    assert_eq!(seen["decision"]["due"], STREAMS, "{line}");
    for figure in
        ["/decision/p50_ms", "/up_bytes_per_client_s", "/down_bytes_per_client_s", "/resident_bytes"]
    {
        assert!(seen.pointer(figure).unwrap().as_f64() > Some(0.0), "{figure}: {line}");
    }
    assert!(seen["decision"]["p50_ms"].as_f64() <= seen["decision"]["p99_ms"].as_f64(), "{line}");
    assert!(line["decided"].as_u64() > Some(0), "{line}");
    let page = http_get(aggregator.address("admin"), "/metrics").1;
    assert_eq!(metric(&page, "plimsoll_children", ""), STREAMS as f64);
    assert!(metric(&page, "plimsoll_report_interval_seconds", "") >= 0.1, "{page}");
    tool.terminate();
    until("the clients to leave", || {
        let page = http_get(aggregator.address("admin"), "/metrics").1;
        (metric(&page, "plimsoll_children", "") == 0.0).then_some(())
    });
}

/// The long run of `./measure books`, in short.
#[test]
fn the_books_balance_although_the_aggregator_and_the_controller_are_killed() {
    let _alone = alone();
    let books = books::run(&Run { clients: 40, lasts: Duration::from_secs(9), kills: true });
    assert!(books.balance(), "{books:?}");
    assert!(books.counted >= books.decided / 2.0 && books.unconfirmed > 0.0, "{books:?}");
    let books = books::run(&Run { clients: 40, lasts: Duration::from_secs(2), kills: false });
    assert!(books.balance() && books.counted == books.decided && books.decided > 0.0, "{books:?}");
}

#[test]
fn too_few_files_are_a_fault_of_the_caller_who_is_told_what_to_do() {
    let tool = env!("CARGO_BIN_EXE_plimsoll");
    let command = format!("ulimit -n 200; exec {tool} streams --aggregator http://127.0.0.1:9=1000");
    let ended = Command::new("sh").args(["-c", &command]).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert!(said.contains("may open 200 files") && said.contains("ulimit -n 1064"), "{said}");
}
