//! The table of rates: redrawn in place on a terminal, printed now and then elsewhere.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use plimsoll_controller::admin::rollout_routes::Policies;
use plimsoll_controller::admin::status::Status;

use super::summary::{Line, Summary, Window};
use crate::load::Outcomes;
use crate::output;
use crate::terminal::Table;

/// The span of the live rates: ten roll-ups, so that one more or less changes little.
const LIVE_WINDOW: Duration = Duration::from_secs(5);
/// Without a terminal, every n-th table is printed.
const PLAIN_EVERY: u32 = 5;

/// Standard output as a screen.
pub(super) struct Screen {
    shows_tables: bool,
    /// The table that is redrawn in place, on a terminal.
    table: Option<Table>,
    /// Tables so far, printed or not.
    drawn: u32,
}

impl Screen {
    /// Without `shows_tables`, text for people goes to standard error and tables are left out.
    pub(super) fn new(shows_tables: bool) -> Self {
        Self { shows_tables, table: shows_tables.then(Table::on_stdout).flatten(), drawn: 0 }
    }

    /// Prints text that is not redrawn.
    pub(super) fn print_once(&self, text: &str) {
        if self.shows_tables {
            let _ = writeln!(output::stdout(), "{text}");
        } else {
            let _ = writeln!(output::stderr(), "{text}");
        }
    }

    /// Draws the present rates.
    pub(super) fn draw(&mut self, status: &Status, policies: &Policies, window: &Window) {
        self.drawn += 1;
        if let Some(table) = &self.table {
            table.show(&live_table(status, policies, window));
        } else if self.shows_tables && self.drawn.is_multiple_of(PLAIN_EVERY) {
            let mut stdout = output::stdout();
            let table = live_table(status, policies, window);
            // A standard output that fails is no reason to stop the demo.
            let _ = stdout.write_all(table.as_bytes()).and_then(|()| stdout.flush());
        }
    }
}

fn live_table(status: &Status, policies: &Policies, window: &Window) -> String {
    let (_, lines) = window.lines(LIVE_WINDOW);
    let connected = status.aggregators.iter().filter(|aggregator| aggregator.connected).count();
    let mut table = format!(
        "epoch {}  policy {}  aggregators {connected}{}{}\n{}",
        status.epoch,
        status.policy_hash,
        if status.killed { "  KILLED: clients only observe and refuse nothing" } else { "" },
        if status.leading { "" } else { "  warming up: no drop ratios are sent yet" },
        waiting(policies),
    );
    header(&mut table);
    for (name, line) in &lines {
        let differs = status
            .buckets
            .get(name.as_str())
            .and_then(|bucket| bucket.file_mode.filter(|file| bucket.mode != *file))
            .map(|file| format!("  (the policy file has {file})"));
        bucket(&mut table, name, line, differs.as_deref().unwrap_or(""));
    }
    table
}

/// Returns what keeps the policy files from being in force, if anything does.
fn waiting(policies: &Policies) -> String {
    if let Some(refused) = &policies.refused {
        // The first line has the place and the reason, and those after it quote the file.
        let first = refused.lines().next().unwrap_or_default().replace(char::is_control, " ");
        return format!("policy refused: {first}\n");
    }
    let held = policies.held.as_ref();
    held.map_or_else(String::new, |held| {
        format!(
            "policy held back: `plimsoll apply --ack {}` releases it, `plimsoll diff` shows why\n",
            held.hash
        )
    })
}

/// Writes the table at the end of a run.
pub(super) fn write_summary(out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
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
    out.write_all(table.as_bytes())?;
    if let Some(load) = &summary.load {
        let Outcomes { sent, served, refused, failed, not_sent, .. } = load.outcomes;
        write!(out, "{sent} requests sent: {served} served, {refused} refused, {failed} failed")?;
        let unanswered = sent.saturating_sub(served + refused + failed);
        if unanswered > 0 {
            write!(out, ", {unanswered} unanswered at the end")?;
        }
        if not_sent > 0 {
            write!(out, "; {not_sent} were due but not sent")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn header(table: &mut String) {
    let _ = writeln!(
        table,
        "{:<28} {:>10} {:>10} {:>10} {:>11}  mode",
        "bucket / tenant", "offered/s", "admitted/s", "limit/s", "drop ratio"
    );
}

fn bucket(table: &mut String, name: &str, line: &Line, note: &str) {
    row(table, name, line, note);
    for (tenant, line) in line.tenants.iter().flatten() {
        let reasons: String = line.reasons.iter().map(|reason| format!("  {}", reason.as_str())).collect();
        row(table, &format!("  {tenant}"), line, &reasons);
    }
}

fn row(table: &mut String, name: &str, line: &Line, note: &str) {
    let number =
        |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
    let _ = writeln!(
        table,
        "{name:<28} {:>10.0} {:>10.0} {:>10} {:>11}  {}{note}",
        line.offered_rps,
        line.admitted_rps,
        number(line.limit_rps, 0),
        line.would_drop_ratio.map_or(number(line.drop_ratio, 3), |ratio| format!("would {ratio:.3}")),
        line.mode,
    );
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plimsoll_controller::admin::rollout_routes::HeldStatus;

    use crate::load::Figures;

    use super::*;

    #[test]
    fn every_sent_request_is_accounted_for() {
        let outcomes = Outcomes { sent: 10, served: 5, refused: 3, not_sent: 1, ..Outcomes::default() };
        let load = Some(Figures { outcomes, p99_ms: 1.0, max_ms: 1.0 });
        let summary = Summary { duration_s: 1.0, window_s: 1.0, buckets: BTreeMap::new(), load };
        let mut out = Vec::new();
        write_summary(&mut out, &summary).unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected = "10 requests sent: 5 served, 3 refused, 0 failed, 2 unanswered at the end; 1 were due but not sent\n";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn table_names_a_policy_that_waits() {
        let policies = |held: bool, refused: Option<&str>| Policies {
            in_force: "0d69".to_owned(),
            held: held.then(|| HeldStatus { hash: "c0de".to_owned(), reasons: vec![], differences: vec![] }),
            refused: refused.map(ToOwned::to_owned),
        };
        for (policies, shown) in [
            (policies(false, None), ""),
            (policies(true, None), "policy held back: `plimsoll apply --ack c0de` releases it"),
            (
                policies(true, Some("p.yaml:3: no\x1b[A key\n3 | ke:")),
                "policy refused: p.yaml:3: no [A key\n",
            ),
        ] {
            let text = waiting(&policies);
            assert!(text.starts_with(shown) && text.is_empty() == shown.is_empty(), "{text}");
        }
    }
}
