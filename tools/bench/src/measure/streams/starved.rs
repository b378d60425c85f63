//! Ten thousand clients on an aggregator that has half a core, because another process competes for
//! it: the time until every stream is open, the number of lost streams, and the time until all are
//! back after a restart.

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use plimsoll_testing::fleet::metric;
use plimsoll_testing::process::{Process, http_get};
use serde_json::Value;

use super::{Streams, aggregator, median};
use crate::measure::report::Report;

const STREAMS: usize = 10_000;
const EVERY: Duration = Duration::from_secs(1);
const SETTLED_WITHIN: Duration = Duration::from_secs(60);
const WATCH: Duration = Duration::from_secs(120);
/// Share of streams that may be lost in a minute.
const LOST_MAX: f64 = 0.001;
/// The outage. Afterwards, clients have reached their longest backoff.
const OUTAGE: Duration = Duration::from_secs(20);
const ALL_BACK_WITHIN: Duration = Duration::from_secs(45);
const CORES: [&str; 2] = ["0", "1"];

pub(crate) fn measure(report: &mut Report) {
    let rival = match Rival::start() {
        Ok(rival) => rival,
        Err(error) => {
            return report.skip(
                "streams on half a core",
                "none",
                &format!("no taskset: {error}"),
            );
        }
    };
    let mut a = aggregator("a", "127.0.0.1:0");
    pin(CORES[0], a.id());
    let tool = Streams::start(&[(&a, STREAMS)], EVERY);
    pin(CORES[1], tool.0.id());
    let began = Instant::now();
    let settled = tool
        .all_connected(SETTLED_WITHIN * 3)
        .map(|at| at.duration_since(began));
    let title = format!("{STREAMS} streams on an aggregator with half a core: until all are open");
    report.row(
        &title,
        "<= 60 s",
        seconds(settled),
        settled.is_some_and(|took| took <= SETTLED_WITHIN),
    );

    let watched = tool.watch(WATCH.as_secs() as usize);
    let lost = lost(watched.last()) - lost(watched.first());
    let share = lost / STREAMS as f64 * 60.0 / WATCH.as_secs_f64();
    let figure = format!(
        "{:.3} % a minute ({lost} in {} s)",
        share * 100.0,
        WATCH.as_secs()
    );
    report.row(
        "streams lost after that",
        "< 0.1 % a minute",
        figure,
        settled.is_some() && share < LOST_MAX,
    );
    let of = |path: &str| -> f64 {
        let figures = watched
            .iter()
            .filter_map(|line| line["aggregators"][0].pointer(path)?.as_f64());
        median(figures.collect())
    };
    let figure = format!(
        "{}, {:.2} cores, {:.0} B/s up and {:.0} B/s down per client, decision to clients p99 {:.0} ms",
        load(&a),
        of("/cores"),
        of("/up_bytes_per_client_s"),
        of("/down_bytes_per_client_s"),
        of("/decision/p99_ms"),
    );
    report.note("the aggregator meanwhile", figure);

    let listen = a.address("listen").to_string();
    a.kill_9();
    sleep(OUTAGE);
    let a = aggregator("a", &listen);
    pin(CORES[0], a.id());
    let listens = Instant::now();
    let back = tool
        .all_connected(ALL_BACK_WITHIN * 2)
        .map(|at| at.duration_since(listens));
    let title = format!(
        "the aggregator restarts after {} s: until all are open again",
        OUTAGE.as_secs()
    );
    report.row(
        &title,
        "<= 45 s",
        seconds(back),
        back.is_some_and(|took| took <= ALL_BACK_WITHIN),
    );
    let page = http_get(a.address("admin"), "/metrics").1;
    let refused = metric(&page, "plimsoll_streams_rejected_total", "reason=\"busy\"");
    report.note(
        "streams that it turned away meanwhile",
        format!("{refused:.0}; {}", load(&a)),
    );
    drop(rival);
}

struct Rival(Child);

impl Rival {
    fn start() -> std::io::Result<Self> {
        let mut command = Command::new("taskset");
        command
            .args(["-c", CORES[0], "sh", "-c", "while :; do :; done"])
            .stdin(Stdio::null());
        command.spawn().map(Self)
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pin(core: &str, pid: u32) {
    let pinned = Command::new("taskset")
        .args(["-apc", core, &pid.to_string()])
        .stdout(Stdio::null())
        .status();
    assert!(
        pinned.is_ok_and(|status| status.success()),
        "process {pid} could not be confined to core {core}"
    );
}

fn lost(line: Option<&Value>) -> f64 {
    line.and_then(|line| line["aggregators"][0]["lost"].as_f64())
        .unwrap_or(f64::NAN)
}

fn load(aggregator: &Process) -> String {
    let page = http_get(aggregator.address("admin"), "/metrics").1;
    let of = |name| metric(&page, name, "");
    format!(
        "report interval {:.1} s, ticks up to {:.2} s late",
        of("plimsoll_report_interval_seconds"),
        of("plimsoll_tick_late_seconds")
    )
}

pub(super) fn seconds(took: Option<Duration>) -> String {
    took.map_or("never".to_owned(), |took| {
        format!("{:.1} s", took.as_secs_f64())
    })
}
