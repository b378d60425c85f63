//! Aggregators with many clients, each on a stream of its own, and the tool that opens and times them.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::process::{POLL, Process};

/// How long all clients may take to come: thousands, on a machine that may have other things to do.
const SETTLES_WITHIN: Duration = Duration::from_secs(120);

/// Where the controller of the tool listens: aggregators must know before it does.
const CONTROLLER: &str = "127.0.0.1:17400";

/// The tool at work.
pub(crate) struct Streams(Process);

/// An aggregator under the tool's controller.
pub(crate) fn aggregator(zone: &str, listen: &str) -> Process {
    let controller = format!("http://{CONTROLLER}");
    let who = ["aggregator", "--zone", zone, "--name", zone, "--controller", &controller];
    Process::start(&[&who[..], &["--listen", listen, "--admin", "127.0.0.1:0"]].concat())
}

impl Streams {
    /// Opens so many streams to each aggregator and decides this often.
    pub(crate) fn start(aggregators: &[(&Process, usize)], every: Duration) -> Self {
        let targets = aggregators
            .iter()
            .map(|(aggregator, streams)| format!("http://{}={streams}", aggregator.address("listen")));
        let pids = aggregators.iter().map(|(aggregator, _)| aggregator.id().to_string());
        let (targets, pids) = (targets.collect::<Vec<_>>().join(","), pids.collect::<Vec<_>>().join(","));
        let every = format!("{}ms", every.as_millis());
        let args = ["streams", "--aggregator", &targets, "--pid", &pids, "--listen", CONTROLLER];
        Self(Process::spawn(&[&args[..], &["--every", &every]].concat()))
    }

    /// What it has said so far, one figure a line.
    pub(crate) fn say(&self) -> Vec<Value> {
        self.0.output_lines()
    }

    /// Waits until all clients are there, and have been for so many lines.
    pub(crate) fn settle(&self, lines: usize) {
        let end = Instant::now() + SETTLES_WITHIN;
        loop {
            let said = self.say();
            let last = said.len().saturating_sub(lines);
            if said.len() > lines && said[last..].iter().all(everybody_is_there) {
                return;
            }
            assert!(Instant::now() < end, "not every client came: {:?}", said.last());
            sleep(POLL);
        }
    }

    /// Waits for so many more lines, and yields them.
    pub(crate) fn watch(&self, lines: usize) -> Vec<Value> {
        let from = self.say().len();
        loop {
            let said = self.say();
            if said.len() >= from + lines {
                return said[from..].to_vec();
            }
            sleep(POLL);
        }
    }
}

fn everybody_is_there(line: &Value) -> bool {
    let mut aggregators = line["aggregators"].as_array().into_iter().flatten();
    aggregators.all(|each| each["connected"] == each["streams"])
}

/// The middle one of the figures; the worse one of two.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
