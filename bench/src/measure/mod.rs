//! `./measure`: real processes in real time, each figure beside its bar. Not part of the tests, for its figures depend
//! on the machine and on what else the machine is doing.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // it measures or it stops

#[path = "measure/accuracy.rs"]
mod accuracy;
#[path = "measure/books.rs"]
mod books;
#[path = "measure/changes.rs"]
mod changes;
#[path = "measure/chart.rs"]
mod chart;
#[path = "measure/fanout.rs"]
mod fanout;
#[allow(dead_code)]
#[path = "../tests/it/fleet.rs"]
mod fleet;
#[path = "../tests/it/books.rs"]
mod fleet_books;
#[path = "measure/goodput.rs"]
mod goodput;
#[path = "measure/kill.rs"]
mod kill;
#[path = "measure/outage.rs"]
mod outage;
#[allow(dead_code)]
#[path = "../tests/it/process.rs"]
mod process;
#[path = "measure/report.rs"]
mod report;
#[path = "measure/shadow.rs"]
mod shadow;
#[path = "measure/step.rs"]
mod step;
#[path = "measure/storm.rs"]
mod storm;
#[path = "measure/streams.rs"]
mod streams;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use report::Report;

const LIMIT: u32 = 1_000;
/// What averages are taken over.
const WINDOW: Duration = Duration::from_secs(20);
/// How long a system in change may take to settle before it is measured.
const SETTLE: Duration = Duration::from_secs(5);

/// Starts a fleet of its own, and writes down what it sees.
type Part = fn(&mut Report);

/// What can be measured by itself; `./measure` measures `decision` before these.
const PARTS: [(&str, Part); 10] = [
    ("accuracy", accuracy::measure),
    ("shadow", shadow::measure),
    ("step", step::measure),
    ("changes", changes::measure),
    ("outage", outage::measure),
    ("kill", kill::measure),
    ("books", books::measure),
    ("goodput", goodput::measure),
    ("fanout", fanout::measure),
    ("storm", storm::measure),
];

fn main() -> ExitCode {
    // Cargo adds a flag of its own.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let known = PARTS.map(|(name, _)| name);
    if let Some(unknown) = wanted.iter().find(|name| !known.contains(&name.as_str())) {
        eprintln!("measure: there is no part `{unknown}`, only {}", known.join(", "));
        return ExitCode::from(2);
    }
    let mut report = Report::new();
    for (name, measure) in PARTS {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            measure(&mut report);
        }
    }
    if wanted.is_empty() { report.finish() } else { report.verdict() }
}

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The sum of a figure over all callers.
fn sum(seen: &[serde_json::Value], figure: &str) -> f64 {
    seen.iter().filter_map(|figures| figures[figure].as_f64()).sum()
}
