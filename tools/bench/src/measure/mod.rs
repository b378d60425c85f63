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
use report::{
    CALLERS, CONSOLE, CUTS, FROZEN, FUZZ, HEADROOM, PLANS, QUOTA, Report, SCALE, SIDECAR, SOAK,
    TAKEOVER, TENANTS, TLS,
};

/// Requests/s.
const LIMIT: u32 = 1_000;
const WINDOW: Duration = Duration::from_secs(20);
const SETTLE: Duration = Duration::from_secs(5);

/// The arguments of `plimsoll-bench measure`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Parts to measure; all of them by default. That writes docs/benchmarks.md; tenants, plans, scale, headroom, takeover, cuts, fuzz, tls, sidecar, quota, frozen, soak, callers and console alone write their sections
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

const PARTS: [(&str, Measure); 25] = [
    ("accuracy", accuracy::measure),
    ("shadow", shadow::measure),
    ("step", step::measure),
    (TENANTS, crate::tenants::measure),
    (PLANS, headroom::plans::measure),
    (SCALE, streams::scale::measure),
    (HEADROOM, headroom::measure),
    ("changes", changes::measure),
    ("outage", outage::measure),
    (TAKEOVER, headroom::takeover::measure),
    (CUTS, headroom::cuts::measure),
    ("kill", kill::measure),
    ("books", books::measure),
    ("goodput", goodput::measure),
    (CALLERS, goodput::callers::measure),
    (CONSOLE, streams::console::measure),
    (FUZZ, crate::fuzz::measure),
    ("fanout", streams::fanout::measure),
    ("starved", streams::starved::measure),
    ("storm", streams::storm::measure),
    (TLS, streams::tls::measure),
    (SIDECAR, crate::sidecar::measure),
    (QUOTA, crate::quota::measure),
    (FROZEN, crate::frozen::measure),
    (SOAK, crate::soak::measure),
];

/// Measures the parts. Fails if a figure misses its bar.
pub(crate) fn run(args: &Args) -> ExitCode {
    let mut report = Report::new(args.clone());
    for (name, measure) in PARTS {
        if args.parts.is_empty() || args.parts.iter().any(|part| part == name) {
            report.begin(name);
            measure(&mut report);
        }
    }
    if args.parts.is_empty() {
        report.write();
    } else {
        report.write_sections(&args.parts);
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
