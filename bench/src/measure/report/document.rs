//! docs/benchmarks.md: the rows of a run, and the results of the benchmarks of single crates, in the places
//! that `document.md` has for them.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use super::{Report, met, output_of};
use crate::measure::goodput::{CAPACITY, Curves, LIMIT, ORDINARY, ORDINARY_RPS, Point};
use crate::measure::root;

const TEMPLATE: &str = include_str!("document.md");

impl Report {
    /// The text of the document.
    pub(super) fn document(&self) -> String {
        let figures = self
            .rows
            .iter()
            .map(|row| format!("| {} | {} | {} | {} |\n", row.what, row.bar, row.figure, row.verdict));
        let decisions = Decisions::read();
        let places = [
            ("{date}", output_of("date", &["-u", "+%Y-%m-%d"])),
            ("{machine}", machine()),
            ("{compiler}", output_of("rustc", &["--version"])),
            ("{revision}", self.revision.clone()),
            ("{figures}", figures.collect()),
            ("{capacity}", CAPACITY.to_string()),
            ("{ordinary}", ORDINARY.to_string()),
            ("{ordinary_rps}", ORDINARY_RPS.to_string()),
            ("{limit}", LIMIT.to_string()),
            ("{goodput}", self.goodput.as_ref().map(goodput).unwrap_or_default()),
            ("{decisions}", decisions.rows()),
            ("{decision_bars}", decisions.bars()),
            ("{merging}", merging()),
            ("{allocation}", table("1,000,000 keys", |ns| ns / 1e6)),
            ("{simulation}", table("simulated_seconds", |ns| 10.0 / (ns / 1e9))),
        ];
        places.iter().fold(TEMPLATE.to_owned(), |text, (place, value)| text.replace(place, value))
    }
}

/// The nanoseconds of a decision with each candidate: hot and over 10,000 keys, on one thread and on two.
struct Decisions(Vec<(String, [f64; 4])>);

impl Decisions {
    fn read() -> Self {
        let json = fs::read_to_string(root().join("target/decision.json")).unwrap_or_default();
        Self(serde_json::from_str(&json).unwrap_or_default())
    }

    fn of(&self, name: &str, case: usize) -> f64 {
        self.0.iter().find(|(row, _)| row.starts_with(name)).map_or(f64::NAN, |(_, figures)| figures[case])
    }

    fn rows(&self) -> String {
        let row = |(name, [a, b, c, d]): &(String, [f64; 4])| {
            format!("| {name} | {a:.1} | {b:.1} | {c:.1} | {d:.1} |\n")
        };
        self.0.iter().map(row).collect()
    }

    fn bars(&self) -> String {
        let (handle, guarded) = ("by handle, independent coin", "by handle, dithered coin and guard");
        let (tenant, governor) = ("by bucket and tenant, independent coin", "governor");
        let mut bars = String::new();
        for (what, most, ns) in [
            ("by handle, independent coin", 3.0, self.of(handle, 0)),
            ("by handle, dithered coin and guard", 6.0, self.of(guarded, 0)),
            ("by bucket and tenant, one hot key", 10.0, self.of(tenant, 0)),
            ("by bucket and tenant, 10,000 keys", 30.0, self.of(tenant, 1)),
        ] {
            let _ = writeln!(bars, "| {what} | <= {most:.0} ns | {ns:.1} ns | {} |", met(ns <= most));
        }
        for (what, least, times) in [
            (
                "by bucket and tenant, 1 thread, one hot key: times as fast as governor",
                3.0,
                self.of(governor, 0) / self.of(tenant, 0),
            ),
            (
                "by bucket and tenant, 2 threads, one hot key: times as fast as governor",
                10.0,
                self.of(governor, 2) / self.of(tenant, 2),
            ),
            (
                "by handle, one hot key: throughput of 2 threads over that of 1",
                1.9,
                2.0 * self.of(handle, 0) / self.of(handle, 2),
            ),
        ] {
            let _ = writeln!(bars, "| {what} | >= {least} | {times:.2} | {} |", met(times >= least));
        }
        bars
    }
}

fn merging() -> String {
    let merged = medians("merge/decode and merge, keys");
    let merged = merged.into_iter().map(|(name, ns)| {
        let bar = if name.ends_with(": 10000") { 20.0 } else { 30.0 };
        format!("| {name} | {:.1} | {} |\n", ns / 1e6, met(ns / 1e6 <= bar))
    });
    let decoded = medians("merge/decode alone, keys").into_iter();
    merged.chain(decoded.map(|(name, ns)| format!("| {name} | {:.1} | |\n", ns / 1e6))).collect()
}

/// A row with a figure for each median of a group of benchmarks.
fn table(group: &str, figure: fn(f64) -> f64) -> String {
    let row = |(name, ns): (String, f64)| format!("| {} | {:.1} |\n", name.replace('_', " "), figure(ns));
    medians(group).into_iter().map(row).collect()
}

/// The medians of a group of benchmarks in nanoseconds, by name; empty if the group was not run.
fn medians(group: &str) -> Vec<(String, f64)> {
    let Ok(entries) = fs::read_dir(root().join("target/criterion").join(group)) else { return Vec::new() };
    let median = |folder: PathBuf| {
        let read = |file: &str| fs::read_to_string(folder.join("new").join(file)).ok();
        let json = |file: &str| serde_json::from_str::<serde_json::Value>(&read(file)?).ok();
        let (estimates, benchmark) = json("estimates.json").zip(json("benchmark.json"))?;
        let of = benchmark["value_str"].as_str().map(|value| format!(": {value}")).unwrap_or_default();
        let name = format!("{}{of}", benchmark["function_id"].as_str()?);
        Some((name, estimates["median"]["point_estimate"].as_f64()?))
    };
    let mut medians: Vec<(String, f64)> =
        entries.filter_map(Result::ok).filter_map(|entry| median(entry.path())).collect();
    medians.sort_by(|a, b| a.0.cmp(&b.0));
    medians
}

fn goodput(curves: &Curves) -> String {
    let row = |(without, with): (&Point, &Point)| {
        format!(
            "| {:.0} | {:.1} x | {:.0} | {:.0} | {:.0} | {:.0} |\n",
            with.offered,
            with.offered / CAPACITY,
            without.useful,
            without.ordinary_useful,
            with.useful,
            with.ordinary_useful
        )
    };
    curves.without.iter().zip(&curves.with).map(row).collect()
}

fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    let gib = memory.and_then(|kib| kib.parse::<f64>().ok()).map_or(0.0, |kib| kib / 1024.0 / 1024.0);
    format!("{}, {cores} cores, {gib:.0} GiB, shared", model.map_or("unknown", |(_, model)| model))
}
