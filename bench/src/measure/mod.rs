//! `plimsoll-bench measure`: real processes in real time, each figure beside its bar. It is no test, because
//! its figures depend on the machine and on what else runs there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a measurement that fails stops the program

mod accuracy;
mod books;
mod changes;
mod goodput;
mod kill;
mod outage;
mod report;
mod shadow;
mod step;
mod streams;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;

use report::Report;

/// The limit of the measured bucket, in requests/s.
const LIMIT: u32 = 1_000;
/// The span of averages.
const WINDOW: Duration = Duration::from_secs(20);
/// The time that the system has to settle after a change, before it is measured.
const SETTLE: Duration = Duration::from_secs(5);

/// The arguments of `plimsoll-bench measure`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Parts to measure; all of them by default, which also writes docs/benchmarks.md
    #[arg(value_enum, value_name = "PART")]
    parts: Vec<Part>,
}

/// A part of the measurements, which starts its own processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Accuracy,
    Shadow,
    Step,
    Changes,
    Outage,
    Kill,
    Books,
    Goodput,
    Fanout,
    Storm,
}

impl Part {
    fn measure(self, report: &mut Report) {
        match self {
            Self::Accuracy => accuracy::measure(report),
            Self::Shadow => shadow::measure(report),
            Self::Step => step::measure(report),
            Self::Changes => changes::measure(report),
            Self::Outage => outage::measure(report),
            Self::Kill => kill::measure(report),
            Self::Books => books::measure(report),
            Self::Goodput => goodput::measure(report),
            Self::Fanout => streams::fanout::measure(report),
            Self::Storm => streams::storm::measure(report),
        }
    }
}

/// Measures the parts. Fails if a figure misses its bar.
pub(crate) fn run(args: &Args) -> ExitCode {
    let mut report = Report::new();
    for part in Part::value_variants() {
        if args.parts.is_empty() || args.parts.contains(part) {
            part.measure(&mut report);
        }
    }
    if args.parts.is_empty() { report.finish() } else { report.verdict() }
}

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The sum of a figure over the summaries of all load generators.
fn sum(summaries: &[serde_json::Value], figure: &str) -> f64 {
    summaries.iter().filter_map(|summary| summary[figure].as_f64()).sum()
}
