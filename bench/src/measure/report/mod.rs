//! The figures beside their bars: on the terminal as they come, and in docs/benchmarks.md at the end.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::goodput::{CAPACITY, Curves, LIMIT, ORDINARY, ORDINARY_RPS};
use crate::root;

/// What stands where a figure has no bar.
const NO_BAR: &str = "none";

/// All figures of a run.
pub(crate) struct Report {
    /// What is measured, as it was when the run began.
    revision: String,
    rows: Vec<Row>,
    goodput: Option<Curves>,
}

struct Row {
    what: String,
    bar: String,
    figure: String,
    /// `None` where it could not be measured.
    met: Option<bool>,
}

impl Report {
    /// An empty report on what is checked out now.
    pub(crate) fn new() -> Self {
        let revision = said_by("git", &["describe", "--always", "--dirty"]);
        Self { revision, rows: Vec::new(), goodput: None }
    }

    /// A figure, and whether it meets its bar.
    pub(crate) fn row(&mut self, what: &str, bar: &str, figure: String, met: bool) {
        println!("{} {what}: {figure} (bar: {bar})", if met { "ok    " } else { "MISSED" });
        self.rows.push(Row { what: what.to_owned(), bar: bar.to_owned(), figure, met: Some(met) });
    }

    /// A figure without a bar.
    pub(crate) fn note(&mut self, what: &str, figure: String) {
        println!("       {what}: {figure}");
        self.rows.push(Row { what: what.to_owned(), bar: NO_BAR.to_owned(), figure, met: Some(true) });
    }

    /// A figure that could not be had.
    pub(crate) fn skip(&mut self, what: &str, bar: &str, why: &str) {
        println!("skip   {what}: {why}");
        self.rows.push(Row { what: what.to_owned(), bar: bar.to_owned(), figure: why.to_owned(), met: None });
    }

    /// The curves of useful answers.
    pub(crate) fn goodput(&mut self, curves: Curves) {
        self.goodput = Some(curves);
    }

    /// Writes the document; fails if a bar was missed.
    pub(crate) fn finish(self) -> ExitCode {
        let document = root().join("docs/benchmarks.md");
        fs::write(&document, self.document()).unwrap();
        println!("written to {}", document.display());
        self.verdict()
    }

    /// Fails if a bar was missed.
    pub(crate) fn verdict(&self) -> ExitCode {
        if self.rows.iter().any(|row| row.met == Some(false)) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    fn document(&self) -> String {
        let mut text = String::from(
            "# Benchmarks\n\n\
             Written by `./measure`; figures hold for the machine they were taken on, and this one is shared. Run it on\n\
             yours before you rely on them.\n\n",
        );
        let _ = writeln!(text, "- date: {}", said_by("date", &["-u", "+%Y-%m-%d"]));
        let _ = writeln!(text, "- machine: {}", machine());
        let _ = writeln!(text, "- compiler: {}", said_by("rustc", &["--version"]));
        let _ = writeln!(text, "- revision: {}\n", self.revision);
        let _ = writeln!(
            text,
            "## Real processes\n\n\
             One controller, two zones with an aggregator and two services each, 70 % of the load in the first zone.\n\
             One bucket with a limit of 1,000 requests/s; open-loop callers ask over HTTP, and for 3,500 requests/s where\n\
             nothing else is said. Goodput is described below. Rows about streams are of `plimsoll streams`: a controller, a\n\
             number of clients with ten tenants among them, each on a connection of its own, and aggregators in processes of\n\
             their own, all on this machine.\n\n\
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

/// What a decision costs, beside what those of the peers do.
fn write_decision(text: &mut String) {
    let _ = writeln!(
        text,
        "\n## One decision\n\n\
         `cargo bench -p plimsoll-client --bench decision`: nanoseconds for one decision as each thread sees them, for one hot\n\
         key and for 10,000 in random order. Medians of 21 rounds in which all candidates take turns; windows of 3 ms in which\n\
         a thread was interrupted, or two threads ran side by side for less than 85 % of the time, are taken again. About a\n\
         nanosecond of each is the loop. Half of our requests are refused but where the name says otherwise; the peers admit.\n\
         Nothing is allocated in any of ours (`client/tests/it/allocations.rs`), and no system call made\n\
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
        ("the same with 2 threads", 10.0, of(governor, 2) / of(tenant, 2)),
        (
            "by handle, what 2 threads do of one hot key to what 1 does",
            1.9,
            2.0 * of(handle, 0) / of(handle, 2),
        ),
    ] {
        let _ = writeln!(text, "| {what} | >= {least} | {times:.2} | {} |", met(times >= least));
    }
    let _ = writeln!(
        text,
        "\nThe bars in nanoseconds were set on a machine on which governor takes 31 ns. Where they are missed and the ratios are\n\
         not, it is the machine. By handle a decision is some 45 instructions with no branch that depends on chance, and the\n\
         profile has no spot above a fifth; evenly over 10,000 keys it waits for memory: two lines of a name, one with the word\n\
         and one with the counts. Instructions are counted in every run of the tests, which fail if they become a fifth more."
    );
}

const fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "**missed**" }
}

/// What the law and the simulator cost, without any process.
fn write_pure(text: &mut String) {
    let _ = writeln!(
        text,
        "\n## Merging\n\n\
         `cargo bench -p plimsoll-aggregator --bench merge`: 1,000 clients with 1,000 changed keys each, decoded and entered, on\n\
         one core. The bars are 20 ns where the zone has 10,000 keys and 30 ns where it has 1,000,000.\n\n\
         | what | ns for an entry | |\n|---|---|---|"
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
        "\nAn entry takes 3.0 bytes on the wire; the bar is 5. Half of the time it waits for memory that does not fit a cache: what the\n\
         stream has told, the line in the books, the key's account and one or two lanes of the fast loop, each of which has to be read\n\
         and written. The other half is some hundred instructions that check, add and spread."
    );
    let _ = writeln!(
        text,
        "\n## Dividing\n\n\
         `cargo bench -p plimsoll-core --bench allocation`: 10,000 buckets with 100 tenants each, once for all of them, on one\n\
         core. The bar is 50 ms.\n\n\
         | what | ms |\n|---|---|"
    );
    for (name, nanoseconds) in medians("1,000,000 keys") {
        let _ = writeln!(text, "| {name} | {:.1} |", nanoseconds / 1e6);
    }
    let _ = writeln!(
        text,
        "\n## Simulating\n\n\
         `cargo bench -p plimsoll-simulator --bench speed`: 100,000 requests/s, 10 virtual seconds and the three before them in which\n\
         the tiers find each other, on one core. The bar is 50 virtual seconds a second with 99 clients.\n\n\
         | what | virtual seconds a second |\n|---|---|"
    );
    for (name, nanoseconds) in medians("simulated_seconds") {
        let _ = writeln!(text, "| {} | {:.1} |", name.replace('_', " "), 10.0 / (nanoseconds / 1e9));
    }
}

/// The medians of a group of benchmarks in nanoseconds, by name; nothing if it was not run.
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
         {CAPACITY:.0} requests/s. Callers give up after 500 ms; an answer is useful if it comes before. {ORDINARY} ordinary tenants\n\
         ask for {ORDINARY_RPS:.0} requests/s each all the time, one hot tenant for more and more. Without Plimsoll means mode\n\
         `shadow`; with it, `enforce` with a limit of {LIMIT} requests/s and equal weights. Requests/s, averaged over the last\n\
         8 s of 12 s at each step. A picture of it is [goodput.svg](goodput.svg).\n\n\
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

fn said_by(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).current_dir(root()).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
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
