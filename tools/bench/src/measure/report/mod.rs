//! The figures of a run with their bars: printed as they are measured, and written to docs/benchmarks.md, where each
//! section says when and at which revision it was measured.

mod document;

use std::fs;
use std::process::{Command, ExitCode};

use super::goodput::Curves;
use super::{Args, root};

const MISSED: &str = "**missed**";
/// The part that measures a section, and the section's text, which begins with its head.
const SECTIONS: [(&str, &str); 23] = [
    ("processes", include_str!("sections/fleets/processes.md")),
    ("streams", include_str!("sections/fleets/streams.md")),
    ("goodput", include_str!("sections/fleets/goodput.md")),
    ("tenants", include_str!("sections/fleets/tenants.md")),
    ("plans", include_str!("sections/fleets/plans.md")),
    ("scale", include_str!("sections/fleets/scale.md")),
    ("headroom", include_str!("sections/fleets/headroom.md")),
    ("takeover", include_str!("sections/controllers/takeover.md")),
    ("cuts", include_str!("sections/controllers/cuts.md")),
    ("fuzz", include_str!("sections/crates/fuzz.md")),
    ("tls", include_str!("sections/servers/tls.md")),
    ("sidecar", include_str!("sections/servers/sidecar.md")),
    ("quota", include_str!("sections/servers/quota.md")),
    ("frozen", include_str!("sections/fleets/frozen.md")),
    ("soak", include_str!("sections/fleets/soak.md")),
    ("callers", include_str!("sections/fleets/callers.md")),
    ("console", include_str!("sections/controllers/console.md")),
    ("decision", include_str!("sections/crates/decision.md")),
    ("decision", include_str!("sections/crates/request.md")),
    ("decision", include_str!("sections/crates/decision_bars.md")),
    ("decision", include_str!("sections/crates/merging.md")),
    ("decision", include_str!("sections/crates/allocation.md")),
    ("decision", include_str!("sections/crates/simulation.md")),
];

pub(crate) struct Report {
    pub(crate) args: Args,
    part: &'static str,
    /// The last commit that changes more than documents.
    revision: String,
    rows: Vec<Row>,
    goodput: Option<Curves>,
}

struct Row {
    part: &'static str,
    what: String,
    bar: String,
    figure: String,
    /// Empty for a figure without a bar.
    verdict: &'static str,
}

impl Report {
    pub(crate) fn new(args: Args) -> Self {
        let code = ["--", ".", ":!docs", ":!*.md", ":!*.svg"];
        let revision = output_of("git", &[&["log", "-1", "--format=%h"], &code[..]].concat());
        let changed = output_of("git", &[&["status", "--short"], &code[..]].concat());
        Self {
            args,
            part: "",
            revision: revision + if changed.is_empty() { "" } else { "-dirty" },
            rows: Vec::new(),
            goodput: None,
        }
    }

    /// Begins a part: the next figures belong to it.
    pub(crate) fn begin(&mut self, part: &'static str) {
        self.part = part;
    }

    /// Adds a figure with its bar, which it meets or misses.
    pub(crate) fn row(&mut self, what: &str, bar: &str, figure: String, is_met: bool) {
        println!(
            "{} {what}: {figure} (bar: {bar})",
            if is_met { "ok    " } else { "MISSED" }
        );
        self.add(what, bar, figure, met(is_met));
    }

    pub(crate) fn note(&mut self, what: &str, figure: String) {
        println!("       {what}: {figure}");
        self.add(what, "none", figure, "");
    }

    pub(crate) fn skip(&mut self, what: &str, bar: &str, why: &str) {
        println!("skip   {what}: {why}");
        self.add(what, bar, why.to_owned(), "not measured");
    }

    fn add(&mut self, what: &str, bar: &str, figure: String, verdict: &'static str) {
        let (what, bar) = (what.to_owned(), bar.to_owned());
        self.rows.push(Row {
            part: self.part,
            what,
            bar,
            figure,
            verdict,
        });
    }

    pub(crate) fn goodput(&mut self, curves: Curves) {
        self.goodput = Some(curves);
    }

    /// Writes the sections of the part that has ended, and keeps the rest of the document.
    pub(crate) fn write(&self) {
        let path = root().join("docs/benchmarks.md");
        let sections = SECTIONS.iter().filter(|(part, _)| *part == self.part);
        let document = sections.fold(
            fs::read_to_string(&path).unwrap(),
            |before, (_, template)| replace_section(&before, template, &self.section(template)),
        );
        fs::write(&path, document).unwrap();
        println!("{} written to {}", self.part, path.display());
    }

    pub(crate) fn verdict(&self) -> ExitCode {
        let is_missed = self.rows.iter().any(|row| row.verdict == MISSED);
        if is_missed {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }
    }
}

fn replace_section(before: &str, template: &str, section: &str) -> String {
    let head = template
        .split_inclusive('\n')
        .next()
        .expect("a template has a head");
    let begin = before.find(head).expect("the document has the section");
    let end = before[begin..]
        .find("\n## ")
        .map_or(before.len(), |at| begin + at + 1);
    [&before[..begin], section, &before[end..]].concat()
}

const fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { MISSED }
}

/// Standard output of a program, or nothing if it cannot run.
fn output_of(program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .current_dir(root())
        .output();
    output
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}
