//! The time from a kill command to a thousand clients: through the controller, and through their
//! aggregator while no controller runs.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_testing::process::{Process, run, until};
use serde_json::Value;

use super::report::Report;

const STREAMS: usize = 1_000;
const POLICY: &str =
    "buckets: { streams: { limit: 1000, mode: enforce } }\nrollout: { require_gates: false }\n";
/// Number of kills timed through each tier; the worst of them counts.
const TIMES: u64 = 5;

pub(crate) fn measure(report: &mut Report) {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    fs::write(path("policy.yaml"), POLICY).unwrap();
    let free = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let (policy, state) = (path("policy.yaml"), path("state"));
    let mut controller = Process::start(
        &[
            &["controller", "--policy", &policy, "--state-dir", &state],
            &free[..],
        ]
        .concat(),
    );
    let uplink = format!("http://{}", controller.address("listen"));
    let aggregator =
        Process::start(&[&["aggregator", "--controller", &uplink], &free[..]].concat());
    let target = format!("http://{}={STREAMS}", aggregator.address("listen"));
    let tool = Process::spawn_program(
        "plimsoll-bench",
        &[
            "streams",
            "--aggregator",
            &target,
            "--controller-elsewhere",
            "--every",
            "200ms",
        ],
    );
    until("all clients to connect", || {
        (tool.output_lines().pop()?["aggregators"][0]["connected"] == STREAMS).then_some(())
    });

    let at = format!("http://{}", controller.address("admin"));
    let drill = drill(&["--controller", &at]);
    report.note("kill drill, 1,000 clients on one aggregator", drill);
    let took = (0..TIMES).map(|n| kill(&tool, &["--controller", &at], 2 * n));
    row(report, "through the controller", took.collect());
    controller.kill_9();
    let at = format!("http://{}", aggregator.address("admin"));
    let took = (0..TIMES).map(|n| kill(&tool, &["--aggregator", &at], 2 * (TIMES + n)));
    row(
        report,
        "through the aggregator, without a controller",
        took.collect(),
    );
}

fn row(report: &mut Report, how: &str, took: Vec<[f64; 2]>) {
    let worst = |at: usize| took.iter().map(|took| took[at]).fold(0.0, f64::max);
    let (p99, last) = (worst(0), worst(1));
    let title = format!("kill {how}, from the command to 1,000 clients, the worst of {TIMES}");
    let figure = format!("p99 {p99:.0} ms, last {last:.0} ms");
    report.row(
        &title,
        "p99 <= 1 s, last <= 2 s",
        figure,
        p99 <= 1_000.0 && last <= 2_000.0,
    );
}

/// Kills, and ends the kill. Returns the milliseconds from the start of the command until 99 %, and
/// all, of the clients had applied it.
fn kill(tool: &Process, admin: &[&str], before: u64) -> [f64; 2] {
    let began = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
        * 1e3;
    output(&[&["kill", "on", "--reason", "measured"], admin].concat());
    let applied = until_all_hold(tool, before + 1);
    output(&[&["kill", "off"], admin].concat());
    until_all_hold(tool, before + 2);
    ["p99_at_ms", "last_at_ms"].map(|figure| applied[figure].as_f64().unwrap() - began)
}

fn until_all_hold(tool: &Process, generation: u64) -> Value {
    until("every client to apply the kill", || {
        let kill = tool.output_lines().pop()?["aggregators"][0]["kill"].clone();
        (kill["generation"] == generation && kill["applied"] == STREAMS).then_some(kill)
    })
}

fn drill(admin: &[&str]) -> String {
    std::thread::sleep(Duration::from_secs(2));
    let drilled: Value = serde_json::from_str(&output(
        &[&["kill", "drill", "--output", "json"], admin].concat(),
    ))
    .unwrap();
    let ms = |figure: &str| drilled["all"][figure].as_f64().unwrap();
    format!(
        "p50 {:.0} ms, p99 {:.0} ms, last {:.0} ms, {} clients",
        ms("p50_ms"),
        ms("p99_ms"),
        ms("last_ms"),
        drilled["all"]["clients"]
    )
}

fn output(args: &[&str]) -> String {
    let ended = run(args);
    assert!(
        ended.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&ended.stderr)
    );
    String::from_utf8(ended.stdout).unwrap()
}
