//! The figures of a run with their bars: printed as they are measured, and written to
//! docs/benchmarks.md at the end.

mod document;

use std::fs;
use std::process::{Command, ExitCode};

use super::goodput::Curves;
use super::{Args, root};

const MISSED: &str = "**missed**";
/// Head of the section that is not measured by a run of processes.
const SIMULATED: &str = "\n## Any number of tenants, simulated";

/// Parts with a separate section, and the section's text, which begins with its head.
pub(super) const TENANTS: &str = "tenants";
pub(super) const PLANS: &str = "plans";
pub(super) const SCALE: &str = "scale";
pub(super) const HEADROOM: &str = "headroom";
pub(super) const TAKEOVER: &str = "takeover";
pub(super) const CUTS: &str = "cuts";
pub(super) const FUZZ: &str = "fuzz";
pub(super) const TLS: &str = "tls";
pub(super) const SIDECAR: &str = "sidecar";
pub(super) const QUOTA: &str = "quota";
pub(super) const FROZEN: &str = "frozen";
pub(super) const SOAK: &str = "soak";
pub(super) const CALLERS: &str = "callers";
pub(super) const CONSOLE: &str = "console";
const SECTIONS: [(&str, &str); 14] = [
    (TENANTS, include_str!("sections/tenants.md")),
    (PLANS, include_str!("sections/plans.md")),
    (SCALE, include_str!("sections/scale.md")),
    (HEADROOM, include_str!("sections/headroom.md")),
    (TAKEOVER, include_str!("sections/controllers/takeover.md")),
    (CUTS, include_str!("sections/controllers/cuts.md")),
    (FUZZ, include_str!("sections/fuzz.md")),
    (TLS, include_str!("sections/tls.md")),
    (SIDECAR, include_str!("sections/sidecar.md")),
    (QUOTA, include_str!("sections/quota.md")),
    (FROZEN, include_str!("sections/frozen.md")),
    (SOAK, include_str!("sections/soak.md")),
    (CALLERS, include_str!("sections/callers.md")),
    (CONSOLE, include_str!("sections/controllers/console.md")),
];

pub(crate) struct Report {
    pub(crate) args: Args,
    part: &'static str,
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
        let revision = output_of("git", &["describe", "--always", "--dirty"]);
        Self {
            args,
            part: "",
            revision,
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

    /// Writes the document, and keeps its last section, which the simulator measured.
    pub(crate) fn write(&self) {
        self.rewrite(|before| {
            let kept = before.find(SIMULATED).map_or("", |at| &before[at..]);
            self.document() + kept
        });
    }

    /// Writes the sections of these parts, and keeps the rest of the document.
    pub(crate) fn write_sections(&self, parts: &[String]) {
        for (part, template) in SECTIONS {
            if parts.iter().any(|of| of == part) {
                self.rewrite(|before| replace_section(before, template, &self.with_run(template)));
            }
        }
    }

    fn rewrite(&self, text: impl FnOnce(&str) -> String) {
        let document = root().join("docs/benchmarks.md");
        let before = fs::read_to_string(&document).unwrap_or_default();
        fs::write(&document, text(&before)).unwrap();
        println!("results written to {}", document.display());
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
