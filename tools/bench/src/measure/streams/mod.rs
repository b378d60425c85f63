//! Aggregators with many clients, each with its own stream, opened and timed by `plimsoll-bench streams`.

pub(super) mod console;
pub(super) mod fanout;
pub(super) mod scale;
pub(super) mod starved;
pub(super) mod storm;
pub(super) mod tls;

use std::thread::sleep;
use std::time::{Duration, Instant};

use plimsoll_testing::process::{POLL, Process};
use serde_json::Value;

/// On a busy machine, for thousands of clients.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(120);

/// Address of the tool's controller, which aggregators need before it listens.
const CONTROLLER: &str = "127.0.0.1:17400";

/// Twice the clients of one address: all of the tool's.
const PENDING_MAX: &str = "20000";

pub(crate) struct Streams(Process);

pub(crate) fn aggregator(zone: &str, listen: &str) -> Process {
    aggregator_with(zone, listen, &[])
}

fn aggregator_with(zone: &str, listen: &str, more: &[&str]) -> Process {
    let controller = format!("http://{CONTROLLER}");
    let flags = [
        "aggregator",
        "--zone",
        zone,
        "--name",
        zone,
        "--controller",
        &controller,
    ];
    Process::start(
        &[
            &flags[..],
            &["--listen", listen, "--admin", "127.0.0.1:0"],
            &["--pending-max", PENDING_MAX],
            more,
        ]
        .concat(),
    )
}

impl Streams {
    /// Opens a number of streams to each aggregator, and changes the limit at an interval.
    pub(crate) fn start(aggregators: &[(&Process, usize)], every: Duration) -> Self {
        Self::start_with("http", aggregators, every, &[])
    }

    /// Opens streams to addresses of this scheme, with more flags of the tool.
    fn start_with(
        scheme: &str,
        aggregators: &[(&Process, usize)],
        every: Duration,
        more: &[&str],
    ) -> Self {
        Self::open(
            scheme,
            aggregators,
            every,
            &[&["--listen", CONTROLLER], more].concat(),
        )
    }

    /// Opens streams to aggregators that have their own controller, with constant limits.
    fn below(aggregators: &[(&Process, usize)], every: Duration, more: &[String]) -> Self {
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        Self::open(
            "http",
            aggregators,
            every,
            &[&["--controller-elsewhere"], &more[..]].concat(),
        )
    }

    fn open(
        scheme: &str,
        aggregators: &[(&Process, usize)],
        every: Duration,
        more: &[&str],
    ) -> Self {
        let targets = aggregators.iter().map(|(aggregator, streams)| {
            format!("{scheme}://{}={streams}", aggregator.address("listen"))
        });
        let pids = aggregators
            .iter()
            .map(|(aggregator, _)| aggregator.id().to_string());
        let (targets, pids) = (
            targets.collect::<Vec<_>>().join(","),
            pids.collect::<Vec<_>>().join(","),
        );
        let every = format!("{}ms", every.as_millis());
        let args = [
            "streams",
            "--aggregator",
            &targets,
            "--pid",
            &pids,
            "--every",
            &every,
        ];
        Self(Process::spawn_program(
            "plimsoll-bench",
            &[&args[..], more].concat(),
        ))
    }

    pub(crate) fn lines(&self) -> Vec<Value> {
        self.0.output_lines()
    }

    pub(crate) fn settle(&self, count: usize) -> bool {
        let end = Instant::now() + CONNECT_TIMEOUT;
        while Instant::now() < end {
            let lines = self.lines();
            let last = lines.len().saturating_sub(count);
            if lines.len() > count && lines[last..].iter().all(all_are_connected) {
                return true;
            }
            sleep(POLL);
        }
        false
    }

    pub(crate) fn all_connected(&self, timeout: Duration) -> Option<Instant> {
        let begin = (Instant::now(), self.lines().len());
        while begin.0.elapsed() < timeout {
            if self.lines()[begin.1..].iter().any(all_are_connected) {
                return Some(Instant::now());
            }
            sleep(POLL);
        }
        None
    }

    pub(crate) fn watch(&self, count: usize) -> Vec<Value> {
        let from = self.lines().len();
        loop {
            let lines = self.lines();
            if lines.len() >= from + count {
                return lines[from..].to_vec();
            }
            assert!(!self.0.has_ended(), "plimsoll-bench streams has ended");
            sleep(POLL);
        }
    }
}

fn all_are_connected(line: &Value) -> bool {
    let mut aggregators = line["aggregators"].as_array().into_iter().flatten();
    aggregators.all(|each| each["connected"] == each["streams"])
}

/// Median of the figures; of an even number, the upper one.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
