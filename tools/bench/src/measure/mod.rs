//! `plimsoll-bench measure`: real processes in real time, each figure with its bar. It is not a
//! test, because its figures depend on the machine and on its other load.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a measurement that fails stops the program

mod accuracy;
mod books;
mod changes;
mod goodput;
mod headroom;
mod kill;
mod outage;
pub(crate) mod report;
mod shadow;
mod step;
mod streams;

pub(crate) use streams::median;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::PossibleValuesParser;

use plimsoll_testing::fleet::Rates;
use report::Report;

/// Requests/s.
const LIMIT: u32 = 1_000;
const WINDOW: Duration = Duration::from_secs(20);
const SETTLE: Duration = Duration::from_secs(5);

/// The arguments of `plimsoll-bench measure`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Parts to measure; all of them by default. Each writes its sections of docs/benchmarks.md
    #[arg(value_name = "PART", value_parser = PossibleValuesParser::new(PARTS.map(|(name, _)| name)))]
    parts: Vec<String>,
    /// Time for which `soak` runs; what it does every minute of an hour comes as many times in less
    #[arg(long, env = "PLIMSOLL_SOAK_FOR", value_name = "TIME", default_value = "1h", value_parser = humantime::parse_duration)]
    pub(crate) soak_for: Duration,
    /// Times for which `frozen` stops each tier
    #[arg(long, env = "PLIMSOLL_FROZEN_FOR", value_name = "TIME", value_delimiter = ',', default_value = "2s,60s,300s", value_parser = humantime::parse_duration)]
    pub(crate) frozen_for: Vec<Duration>,
    /// Kills of the leader by `takeover`, one every 15 s
    #[arg(long, env = "PLIMSOLL_TAKEOVER_KILLS", value_name = "COUNT", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) takeover_kills: u64,
}

type Measure = fn(&mut Report);

/// The parts, each with what it measures. Those of single crates are measured by `cargo bench`, and only written here.
const PARTS: [(&str, &[Measure]); 18] = [
    (
        "processes",
        &[
            accuracy::measure,
            shadow::measure,
            step::measure,
            changes::measure,
            outage::measure,
            kill::measure,
            books::measure,
        ],
    ),
    ("goodput", &[goodput::measure]),
    (
        "streams",
        &[
            streams::fanout::measure,
            streams::starved::measure,
            streams::storm::measure,
        ],
    ),
    ("tenants", &[crate::tenants::measure]),
    ("plans", &[headroom::plans::measure]),
    ("scale", &[streams::scale::measure]),
    ("headroom", &[headroom::measure]),
    ("takeover", &[headroom::takeover::measure]),
    ("cuts", &[headroom::cuts::measure]),
    ("callers", &[goodput::callers::measure]),
    ("console", &[streams::console::measure]),
    ("fuzz", &[crate::fuzz::measure]),
    ("tls", &[streams::tls::measure]),
    ("sidecar", &[crate::sidecar::measure]),
    ("quota", &[crate::quota::measure]),
    ("frozen", &[crate::frozen::measure]),
    ("soak", &[crate::soak::measure]),
    ("decision", &[]),
];

/// Measures the parts, and writes the sections of each as it ends. Fails if a figure misses its bar.
pub(crate) fn run(args: &Args) -> ExitCode {
    let mut report = Report::new(args.clone());
    for (part, measures) in PARTS {
        if args.parts.is_empty() || args.parts.iter().any(|of| of == part) {
            report.begin(part);
            measures.iter().for_each(|measure| measure(&mut report));
            report.write();
        }
    }
    report.verdict()
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Error of the admitted requests against the limit, relative to it.
fn limit_error(rates: &Rates) -> f64 {
    rates.admitted / f64::from(LIMIT) - 1.0
}

fn sum(summaries: &[serde_json::Value], figure: &str) -> f64 {
    summaries
        .iter()
        .filter_map(|summary| summary[figure].as_f64())
        .sum()
}
