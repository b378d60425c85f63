//! The table people watch: redrawn in place on a terminal, plain lines elsewhere.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use plimsoll_controller::status::Status;

use super::summary::{Line, Summary, Window};

/// What the live figures are averaged over: ten roll-ups, so that one more or less shows little.
const LIVE: Duration = Duration::from_secs(5);
/// Without a terminal, one table in this many is printed.
const PLAIN_EVERY: u32 = 5;

/// Where the table goes.
pub(super) struct Screen {
    wanted: bool,
    in_place: bool,
    lines: usize,
    drawn: u32,
}

impl Screen {
    /// A screen that shows something only if `wanted`; otherwise everything for people goes to standard error.
    pub(super) fn new(wanted: bool) -> Self {
        Self { wanted, in_place: std::io::stdout().is_terminal(), lines: 0, drawn: 0 }
    }

    /// Says something once.
    pub(super) fn say(&self, text: &str) {
        if self.wanted {
            println!("{text}");
        } else {
            eprintln!("{text}");
        }
    }

    /// Draws the present state.
    pub(super) fn draw(&mut self, status: &Status, window: &Window) {
        self.drawn += 1;
        if !self.wanted || (!self.in_place && !self.drawn.is_multiple_of(PLAIN_EVERY)) {
            return;
        }
        let table = live_table(status, window);
        let mut out = String::new();
        if self.in_place && self.lines > 0 {
            // Up over the last table, and clear what is below.
            let _ = write!(out, "\x1b[{}A\x1b[J", self.lines);
        }
        out.push_str(&table);
        self.lines = table.lines().count();
        let mut stdout = std::io::stdout().lock();
        // A reader that went away ends the run by its own means; there is nothing to save here.
        let _ = stdout.write_all(out.as_bytes()).and_then(|()| stdout.flush());
    }
}

fn live_table(status: &Status, window: &Window) -> String {
    let (_, lines) = window.lines(LIVE);
    let connected = status.aggregators.iter().filter(|aggregator| aggregator.connected).count();
    let mut table = format!(
        "epoch {}  policy {}  aggregators {connected}{}{}\n",
        status.epoch,
        status.policy_hash,
        if status.killed { "  KILLED: every client only observes" } else { "" },
        if status.leading { "" } else { "  waiting for traffic before ratios are sent" },
    );
    header(&mut table);
    for (name, line) in &lines {
        let differs = status
            .buckets
            .get(name.as_str())
            .and_then(|bucket| bucket.file_mode.filter(|file| *file != bucket.mode))
            .map(|file| format!("  (the file says {file})"));
        bucket(&mut table, name, line, differs.as_deref().unwrap_or(""));
    }
    table
}

/// The table a run ends with.
pub(super) fn final_table(summary: &Summary) -> String {
    let mut table = format!("\nover the last {:.0} s of {:.0} s\n", summary.window_s, summary.duration_s);
    header(&mut table);
    for (name, line) in &summary.buckets {
        let error = line.limit_rps.filter(|limit| *limit > 0.0 && line.offered_rps > *limit);
        let error = error.map(|limit| {
            let error = (line.admitted_rps / limit - 1.0) * 100.0;
            format!("  {:.1} % {} the limit", error.abs(), if error < 0.0 { "below" } else { "above" })
        });
        bucket(&mut table, name, line, error.as_deref().unwrap_or(""));
    }
    if let Some(load) = &summary.load {
        let _ = writeln!(
            table,
            "callers saw {} served, {} refused, {} failed of {} requests{}",
            load.outcomes.served,
            load.outcomes.refused,
            load.outcomes.failed,
            load.outcomes.sent,
            if load.outcomes.not_sent > 0 {
                format!("; {} were due but not sent", load.outcomes.not_sent)
            } else {
                String::new()
            },
        );
    }
    table
}

fn header(table: &mut String) {
    let _ = writeln!(
        table,
        "{:<28} {:>10} {:>10} {:>10} {:>7}  mode",
        "bucket / tenant", "offered/s", "admitted/s", "limit/s", "ratio"
    );
}

fn bucket(table: &mut String, name: &str, line: &Line, note: &str) {
    row(table, name, line, note);
    for (tenant, line) in line.tenants.iter().flatten() {
        row(table, &format!("  {tenant}"), line, "");
    }
}

fn row(table: &mut String, name: &str, line: &Line, note: &str) {
    let number =
        |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
    let _ = writeln!(
        table,
        "{name:<28} {:>10.0} {:>10.0} {:>10} {:>7}  {}{note}",
        line.offered_rps,
        line.admitted_rps,
        number(line.limit_rps, 0),
        number(line.drop_ratio, 3),
        line.mode,
    );
}
