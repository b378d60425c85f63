//! The table of rates, printed every few seconds and at the end.

use std::fmt::Write as _;
use std::io::{self, Write};

use plimsoll_controller::admin::status::{Policies, Status};

use super::summary::{Line, Summary};
use crate::load::Outcomes;

/// Returns the table of the present rates, below the state of the fleet.
pub(super) fn present(status: &Status, policies: &Policies, summary: &Summary) -> String {
    let connected = status
        .aggregators
        .iter()
        .filter(|aggregator| aggregator.connected)
        .count();
    let mut table = format!(
        "epoch {}  policy {}  aggregators {connected}{}{}\n{}",
        status.epoch,
        status.policy_hash,
        if status.killed {
            "  KILLED: clients only observe and refuse nothing"
        } else {
            ""
        },
        if status.leading {
            ""
        } else {
            "  warming up: no drop ratios are sent yet"
        },
        waiting(policies),
    );
    write_lines(&mut table, summary, |name, line| {
        let file = status
            .buckets
            .get(name)
            .and_then(|bucket| bucket.file_mode)
            .filter(|file| line.mode != *file);
        file.map(|file| format!("  (the policy file has {file})"))
    });
    table
}

/// Returns the reason why the policy files are not applied, if any.
fn waiting(policies: &Policies) -> String {
    if let Some(refused) = &policies.refused {
        // The first line has the place and the reason, and the later lines quote the file.
        let first = refused
            .lines()
            .next()
            .unwrap_or_default()
            .replace(char::is_control, " ");
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

pub(super) fn write_summary(out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    let mut table = format!(
        "\nover the last {:.0} s of {:.0} s\n",
        summary.window_s, summary.duration_s
    );
    write_lines(&mut table, summary, |_, line| {
        let limit = line
            .limit_rps
            .filter(|limit| *limit > 0.0 && line.offered_rps > *limit)?;
        let error = (line.admitted_rps / limit - 1.0) * 100.0;
        Some(format!(
            "  {:.1} % {} the limit",
            error.abs(),
            if error < 0.0 { "below" } else { "above" }
        ))
    });
    out.write_all(table.as_bytes())?;
    let Some(load) = &summary.load else {
        return Ok(());
    };
    let Outcomes {
        sent,
        served,
        refused,
        failed,
        not_sent,
        ..
    } = load.outcomes;
    let unanswered = sent.saturating_sub(served + refused + failed);
    write!(
        out,
        "{sent} requests sent: {served} served, {refused} refused, {failed} failed"
    )?;
    writeln!(
        out,
        ", {unanswered} unanswered at the end; {not_sent} were due but not sent"
    )
}

/// Writes a row for each bucket, with a note on it, and one for each tenant, with the reasons of
/// its refusals.
fn write_lines(
    table: &mut String,
    summary: &Summary,
    note: impl Fn(&str, &Line) -> Option<String>,
) {
    let _ = writeln!(
        table,
        "{:<28} {:>10} {:>10} {:>10} {:>11}  mode",
        "bucket / tenant", "offered/s", "admitted/s", "limit/s", "drop ratio"
    );
    for (name, line) in &summary.buckets {
        row(table, name, line, &note(name, line).unwrap_or_default());
        for (tenant, line) in line.tenants.iter().flatten() {
            let reasons: String = line
                .reasons
                .iter()
                .map(|reason| format!("  {}", reason.as_str()))
                .collect();
            row(table, &format!("  {tenant}"), line, &reasons);
        }
    }
}

fn row(table: &mut String, name: &str, line: &Line, note: &str) {
    let number = |value: Option<f64>, digits: usize| {
        value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
    };
    let _ = writeln!(
        table,
        "{name:<28} {:>10.0} {:>10.0} {:>10} {:>11}  {}{note}",
        line.offered_rps,
        line.admitted_rps,
        number(line.limit_rps, 0),
        line.would_drop_ratio
            .map_or(number(line.drop_ratio, 3), |ratio| format!(
                "would {ratio:.3}"
            )),
        line.mode,
    );
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plimsoll_controller::admin::status::HeldStatus;

    use crate::load::Figures;

    use super::*;

    #[test]
    fn every_sent_request_is_accounted_for() {
        let outcomes = Outcomes {
            sent: 10,
            served: 5,
            refused: 3,
            not_sent: 1,
            ..Outcomes::default()
        };
        let load = Some(Figures {
            outcomes,
            p99_ms: 1.0,
            max_ms: 1.0,
        });
        let summary = Summary {
            duration_s: 1.0,
            window_s: 1.0,
            buckets: BTreeMap::new(),
            load,
        };
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
            held: held.then(|| HeldStatus {
                hash: "c0de".to_owned(),
                since_s: None,
                reasons: vec![],
                differences: vec![],
            }),
            refused: refused.map(ToOwned::to_owned),
            refused_since_s: None,
        };
        for (policies, shown) in [
            (policies(false, None), ""),
            (
                policies(true, None),
                "policy held back: `plimsoll apply --ack c0de` releases it",
            ),
            (
                policies(true, Some("p.yaml:3: no\x1b[A key\n3 | ke:")),
                "policy refused: p.yaml:3: no [A key\n",
            ),
        ] {
            let text = waiting(&policies);
            assert!(
                text.starts_with(shown) && text.is_empty() == shown.is_empty(),
                "{text}"
            );
        }
    }
}
