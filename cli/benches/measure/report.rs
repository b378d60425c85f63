//! The figures beside their bars: on the terminal as they come, and in docs/benchmarks.md at the end.

use std::fmt::Write as _;
use std::fs;
use std::process::{Command, ExitCode};

use crate::goodput::{CAPACITY, Curves, LIMIT, ORDINARY, ORDINARY_RPS};
use crate::root;

/// All figures of a run.
pub(crate) struct Report {
    /// What is measured, as it was when the run began.
    revision: String,
    rows: Vec<Row>,
    goodput: Option<Curves>,
    decisions: Vec<(String, f64)>,
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
        Self { revision, rows: Vec::new(), goodput: None, decisions: Vec::new() }
    }

    /// A figure, and whether it meets its bar.
    pub(crate) fn row(&mut self, what: &str, bar: &str, figure: String, met: bool) {
        println!("{} {what}: {figure} (bar: {bar})", if met { "ok    " } else { "MISSED" });
        self.rows.push(Row { what: what.to_owned(), bar: bar.to_owned(), figure, met: Some(met) });
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

    /// Takes over the medians of the benchmark of one decision, if it has been run.
    fn decisions(&mut self) {
        let directory = root().join("target/criterion/admit");
        let Ok(entries) = fs::read_dir(directory) else { return };
        for entry in entries.filter_map(Result::ok) {
            let read = |file: &str| fs::read_to_string(entry.path().join("new").join(file)).ok();
            let json = |file: &str| serde_json::from_str::<serde_json::Value>(&read(file)?).ok();
            let Some((estimates, benchmark)) = json("estimates.json").zip(json("benchmark.json")) else {
                continue;
            };
            let name = benchmark["function_id"].as_str().unwrap_or_default().to_owned();
            self.decisions.push((name, estimates["median"]["point_estimate"].as_f64().unwrap_or(f64::NAN)));
        }
        self.decisions.sort_by(|a, b| a.0.cmp(&b.0));
    }

    /// Writes the document; fails if a bar was missed.
    pub(crate) fn finish(mut self) -> ExitCode {
        self.decisions();
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
             nothing else is said. Goodput is described below.\n\n\
             | what | bar | figure | |\n|---|---|---|---|"
        );
        for row in &self.rows {
            let met = match row.met {
                Some(true) => "met",
                Some(false) => "**missed**",
                None => "not measured",
            };
            let _ = writeln!(text, "| {} | {} | {} | {met} |", row.what, row.bar, row.figure);
        }
        if let Some(curves) = &self.goodput {
            write_goodput(&mut text, curves);
        }
        let _ = writeln!(
            text,
            "\n## One decision\n\n\
             `cargo bench -p plimsoll-client --bench admit`: medians, one thread unless said otherwise. Nothing is\n\
             allocated in any of them (`client/tests/it/allocations.rs`).\n\n\
             | decision | ns |\n|---|---|"
        );
        for (name, nanoseconds) in &self.decisions {
            let _ = writeln!(text, "| {name} | {nanoseconds:.1} |");
        }
        text
    }
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
