//! docs/benchmarks.md: the rows of a run, and the results of the benchmarks of single crates.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use super::{NO_BAR, Report, output_of};
use crate::measure::goodput::{CAPACITY, Curves, LIMIT, ORDINARY, ORDINARY_RPS};
use crate::measure::root;

impl Report {
    /// The text of the document.
    pub(super) fn document(&self) -> String {
        let mut text = String::from(
            "# Benchmarks\n\n\
             Written by `./measure`. The figures hold for the machine below, which is shared; run it on yours before you\n\
             rely on them.\n\n",
        );
        let _ = writeln!(text, "- date: {}", output_of("date", &["-u", "+%Y-%m-%d"]));
        let _ = writeln!(text, "- machine: {}", machine());
        let _ = writeln!(text, "- compiler: {}", output_of("rustc", &["--version"]));
        let _ = writeln!(text, "- revision: {}\n", self.revision);
        let _ = writeln!(
            text,
            "## Real processes\n\n\
             One controller, two zones with an aggregator and two services each, 70 % of the load in the first zone.\n\
             One bucket with a limit of 1,000 requests/s; open-loop callers send HTTP requests, 3,500 each second unless a\n\
             row has another rate. Goodput is described below. Rows about streams come from `plimsoll-bench streams`: a\n\
             controller, clients for ten tenants with a connection each, and aggregators in their own processes, all on this\n\
             machine.\n\n\
             | what | bar | figure | |\n|---|---|---|---|"
        );
        for row in &self.rows {
            let verdict = match row.met {
                _ if row.bar == NO_BAR => "",
                Some(is_met) => met(is_met),
                None => "not measured",
            };
            let _ = writeln!(text, "| {} | {} | {} | {verdict} |", row.what, row.bar, row.figure);
        }
        if let Some(curves) = &self.goodput {
            write_goodput(&mut text, curves);
        }
        write_decision(&mut text);
        write_pure(&mut text);
        text
    }
}

/// Writes the cost of a decision, beside those of comparable libraries.
fn write_decision(text: &mut String) {
    let _ = writeln!(
        text,
        "\n## One decision\n\n\
         `cargo bench -p plimsoll-client --bench decision`: nanoseconds for one decision as each thread sees them, for one hot\n\
         key and for 10,000 in random order. Medians of 21 rounds in which all candidates take turns; windows of 3 ms in which\n\
         a thread was interrupted, or two threads ran side by side for less than 85 % of the time, are repeated. The loop\n\
         takes about a nanosecond of each figure. Half of our requests are refused unless the name has another share; the\n\
         peers admit all. Our decisions allocate nothing (`client/tests/it/allocations.rs`) and make no system call\n\
         (`client/tests/it/hot_path.rs`).\n\n\
         | decision | 1 thread, hot | 1 thread, 10k | 2 threads, hot | 2 threads, 10k |\n|---|---|---|---|---|"
    );
    let json = fs::read_to_string(root().join("target/decision.json")).unwrap_or_default();
    let rows: Vec<(String, [f64; 4])> = serde_json::from_str(&json).unwrap_or_default();
    for (name, figures) in &rows {
        let figures: Vec<String> = figures.iter().map(|ns| format!("{ns:.1}")).collect();
        let _ = writeln!(text, "| {name} | {} |", figures.join(" | "));
    }
    let of = |name: &str, case: usize| {
        rows.iter().find(|(row, _)| row.starts_with(name)).map_or(f64::NAN, |(_, figures)| figures[case])
    };
    let (handle, guarded) = ("by handle, independent coin", "by handle, dithered coin and guard");
    let (tenant, governor) = ("by bucket and tenant, independent coin", "governor");
    let _ = writeln!(text, "\n| what | bar | figure | |\n|---|---|---|---|");
    for (what, most, ns) in [
        ("by handle, independent coin", 3.0, of(handle, 0)),
        ("by handle, dithered coin and guard", 6.0, of(guarded, 0)),
        ("by bucket and tenant, one hot key", 10.0, of(tenant, 0)),
        ("by bucket and tenant, 10,000 keys", 30.0, of(tenant, 1)),
    ] {
        let _ = writeln!(text, "| {what} | <= {most:.0} ns | {ns:.1} ns | {} |", met(ns <= most));
    }
    for (what, least, times) in [
        (
            "by bucket and tenant, 1 thread, one hot key: times as fast as governor",
            3.0,
            of(governor, 0) / of(tenant, 0),
        ),
        (
            "by bucket and tenant, 2 threads, one hot key: times as fast as governor",
            10.0,
            of(governor, 2) / of(tenant, 2),
        ),
        (
            "by handle, one hot key: throughput of 2 threads over that of 1",
            1.9,
            2.0 * of(handle, 0) / of(handle, 2),
        ),
    ] {
        let _ = writeln!(text, "| {what} | >= {least} | {times:.2} | {} |", met(times >= least));
    }
    let _ = writeln!(
        text,
        "\nThe bars in nanoseconds were set on a machine on which governor takes 31 ns. If they are missed and the ratios are met,\n\
         the machine is slower. By handle a decision is about 45 instructions without a branch that depends on chance, and no\n\
         spot of its profile takes more than a fifth. Evenly over 10,000 keys it waits for memory: two cache lines of a name,\n\
         one with the directive and one with the counts. The tests count the instructions, and fail if they grow by a fifth."
    );
}

const fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "**missed**" }
}

/// Writes the cost of merging, allocation and simulation, which need no process.
fn write_pure(text: &mut String) {
    let _ = writeln!(
        text,
        "\n## Merging\n\n\
         `cargo bench -p plimsoll-aggregator --bench merge`: reports of 1,000 clients with 1,000 changed keys each, decoded and\n\
         merged on one core. The bars are 20 ns where the zone has 10,000 keys and 30 ns where it has 1,000,000.\n\n\
         | what | ns per entry | |\n|---|---|---|"
    );
    for (name, nanoseconds) in medians("merge/decode and merge, keys") {
        let bar = if name.ends_with(": 10000") { 20.0 } else { 30.0 };
        let _ = writeln!(text, "| {name} | {:.1} | {} |", nanoseconds / 1e6, met(nanoseconds / 1e6 <= bar));
    }
    for (name, nanoseconds) in medians("merge/decode alone, keys") {
        let _ = writeln!(text, "| {name} | {:.1} | |", nanoseconds / 1e6);
    }
    let _ = writeln!(
        text,
        "\nAn entry takes 3.0 bytes on the wire; the bar is 5. Half of the time the merge waits for memory outside the caches: the\n\
         last counts of the stream, the key's counts and one or two key rates of the fast loop are read and written. The other\n\
         half is about a hundred instructions that check, add and distribute."
    );
    let _ = writeln!(
        text,
        "\n## Allocation\n\n\
         `cargo bench -p plimsoll-core --bench allocation`: the limits of 10,000 buckets divided among 100 tenants each, on\n\
         one core. The bar is 50 ms.\n\n\
         | what | ms |\n|---|---|"
    );
    for (name, nanoseconds) in medians("1,000,000 keys") {
        let _ = writeln!(text, "| {name} | {:.1} |", nanoseconds / 1e6);
    }
    let _ = writeln!(
        text,
        "\n## Simulation\n\n\
         `cargo bench -p plimsoll-simulator --bench speed`: 100,000 requests/s for 10 virtual seconds, after three in which the\n\
         tiers connect, on one core. The bar is 50 virtual seconds per second with 99 clients.\n\n\
         | what | virtual seconds per second |\n|---|---|"
    );
    for (name, nanoseconds) in medians("simulated_seconds") {
        let _ = writeln!(text, "| {} | {:.1} |", name.replace('_', " "), 10.0 / (nanoseconds / 1e9));
    }
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

fn write_goodput(text: &mut String, curves: &Curves) {
    let _ = writeln!(
        text,
        "\n## Goodput\n\n\
         The same fleet with a finite capacity: `plimsoll service --workers 4 --work-ms 40 --queue 100`, which makes\n\
         {CAPACITY:.0} requests/s. Callers give up after 500 ms; an earlier answer is useful. {ORDINARY} ordinary tenants send\n\
         {ORDINARY_RPS:.0} requests/s each all the time, one hot tenant more and more. Without Plimsoll means mode `shadow`; with it,\n\
         `enforce` with a limit of {LIMIT} requests/s and equal weights. Requests/s, averaged over the last 8 s of 12 s at each\n\
         step, drawn in [goodput.svg](goodput.svg).\n\n\
         | offered | of the capacity | useful without | of these ordinary | useful with | of these ordinary |\n\
         |---|---|---|---|---|---|"
    );
    for (without, with) in curves.without.iter().zip(&curves.with) {
        let _ = writeln!(
            text,
            "| {:.0} | {:.1} x | {:.0} | {:.0} | {:.0} | {:.0} |",
            with.offered,
            with.offered / CAPACITY,
            without.useful,
            without.ordinary_useful,
            with.useful,
            with.ordinary_useful
        );
    }
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
