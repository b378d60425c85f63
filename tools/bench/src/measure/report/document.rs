//! A section of docs/benchmarks.md: the rows of a run, or the results of the benchmarks of single crates, in the places
//! of its template.

use std::fs;
use std::path::PathBuf;

use super::{Report, met, output_of};
use crate::figures::{Bar, Figures, NO_LAYER, REQUESTS, cpu};
use crate::measure::goodput::{CAPACITY, Curves, LIMIT, ORDINARY, ORDINARY_RPS, Point};
use crate::measure::root;

impl Report {
    /// Fills a template in.
    pub(super) fn section(&self, template: &str) -> String {
        let places: [(&str, &dyn Fn() -> String); 15] = [
            ("{date}", &|| output_of("date", &["-u", "+%Y-%m-%d"])),
            ("{machine}", &machine),
            ("{revision}", &|| self.revision.clone()),
            ("{rows}", &|| self.rows()),
            ("{capacity}", &|| CAPACITY.to_string()),
            ("{ordinary}", &|| ORDINARY.to_string()),
            ("{ordinary_rps}", &|| ORDINARY_RPS.to_string()),
            ("{limit}", &|| LIMIT.to_string()),
            ("{goodput}", &|| {
                self.goodput.as_ref().map(goodput).unwrap_or_default()
            }),
            ("{decisions}", &|| rows(&Figures::read().decisions, 1)),
            ("{layers}", &|| layers(&Figures::read())),
            ("{decision_bars}", &|| bars(&Figures::read())),
            ("{merging}", &merging),
            ("{allocation}", &|| table("1,000,000 keys", |ns| ns / 1e6)),
            ("{simulation}", &|| {
                table("simulated_seconds", |ns| 10.0 / (ns / 1e9))
            }),
        ];
        let mut text = template.to_owned();
        for (place, value) in places {
            if text.contains(place) {
                text = text.replace(place, &value());
            }
        }
        text
    }

    /// The rows of the part.
    fn rows(&self) -> String {
        let rows = self.rows.iter().filter(|row| row.part == self.part);
        rows.map(|row| {
            format!(
                "| {} | {} | {} | {} |\n",
                row.what, row.bar, row.figure, row.verdict
            )
        })
        .collect()
    }
}

fn rows<const N: usize>(rows: &[(String, [f64; N])], decimals: usize) -> String {
    let row = |(name, figures): &(String, [f64; N])| {
        let cells: String = figures
            .iter()
            .map(|figure| format!(" {figure:.decimals$} |"))
            .collect();
        format!("| {name} |{cells}\n")
    };
    rows.iter().map(row).collect()
}

/// A row for each service with the nanoseconds of a request and of the layer, and requests/s where
/// they were measured.
fn layers(figures: &Figures) -> String {
    let row = |(name, ns): &(String, [f64; REQUESTS.len()])| {
        let cells = ns
            .iter()
            .zip(figures.request(NO_LAYER))
            .map(|(with, without)| match name.as_str() {
                NO_LAYER => format!(" {with:.0} |"),
                _ => format!(" {with:.0} ({:+.0}) |", with - without),
            });
        let http = figures.http.iter().find(|(service, _)| service == name);
        let http = http.map_or(String::new(), |(_, per_second)| format!("{per_second:.0}"));
        format!("| {name} |{} {http} |\n", cells.collect::<String>())
    };
    figures.requests.iter().map(row).collect()
}

fn bars(figures: &Figures) -> String {
    let row = |bar: Bar| {
        format!(
            "| {} | {} | {} | {} |\n",
            bar.what,
            bar.bar,
            bar.figure,
            met(bar.is_met)
        )
    };
    figures.bars().into_iter().map(row).collect()
}

fn merging() -> String {
    let merged = medians("merge/decode and merge, keys");
    let merged = merged.into_iter().map(|(name, ns)| {
        let bar = if name.ends_with(": 10000") {
            20.0
        } else {
            30.0
        };
        format!("| {name} | {:.1} | {} |\n", ns / 1e6, met(ns / 1e6 <= bar))
    });
    let decoded = medians("merge/decode alone, keys").into_iter();
    merged
        .chain(decoded.map(|(name, ns)| format!("| {name} | {:.1} | |\n", ns / 1e6)))
        .collect()
}

/// A row with a figure for each median of a group of benchmarks.
fn table(group: &str, figure: fn(f64) -> f64) -> String {
    let row =
        |(name, ns): (String, f64)| format!("| {} | {:.1} |\n", name.replace('_', " "), figure(ns));
    medians(group).into_iter().map(row).collect()
}

/// Medians of a group of benchmarks in nanoseconds, by name; empty if the group was not run.
fn medians(group: &str) -> Vec<(String, f64)> {
    let Ok(entries) = fs::read_dir(root().join("target/criterion").join(group)) else {
        return Vec::new();
    };
    let median = |folder: PathBuf| {
        let read = |file: &str| fs::read_to_string(folder.join("new").join(file)).ok();
        let json = |file: &str| serde_json::from_str::<serde_json::Value>(&read(file)?).ok();
        let (estimates, benchmark) = json("estimates.json").zip(json("benchmark.json"))?;
        let of = benchmark["value_str"]
            .as_str()
            .map(|value| format!(": {value}"))
            .unwrap_or_default();
        let name = format!("{}{of}", benchmark["function_id"].as_str()?);
        Some((name, estimates["median"]["point_estimate"].as_f64()?))
    };
    let mut medians: Vec<(String, f64)> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| median(entry.path()))
        .collect();
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
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    let gib = memory
        .and_then(|kib| kib.parse::<f64>().ok())
        .map_or(0.0, |kib| kib / 1024.0 / 1024.0);
    format!("{}, {gib:.0} GiB, shared", cpu())
}
