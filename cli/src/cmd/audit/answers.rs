//! Lines of the audit log, and the result of its verification, as text for operators.

use std::io::{self, Write};

use plimsoll_controller::audit::{Head, Line, Record, Verified};
use plimsoll_core::names::Text;

use crate::output::counted;

/// The headings of the columns.
const HEADINGS: [&str; 8] = ["LINE", "TIME", "WHO", "ROLE", "FROM", "WHAT", "BEFORE -> AFTER", "WHY"];
/// The widest column that is padded.
const WIDTH_MAX: usize = 40;

/// Writes lines as a table.
pub(super) fn write_table(out: &mut dyn Write, lines: &[Result<Line, String>]) -> io::Result<()> {
    if lines.is_empty() {
        return writeln!(out, "the audit log has no lines");
    }
    let mut rows = vec![HEADINGS.map(ToOwned::to_owned)];
    rows.extend(lines.iter().map(|line| match line {
        Ok(line) => row(line),
        Err(text) => {
            let mut row = <[String; HEADINGS.len()]>::default();
            row[5] = format!("not a line of the log, see `plimsoll audit verify`: {text}");
            row
        }
    }));
    for row in &mut rows {
        for cell in row.iter_mut() {
            // A manipulated file could control the terminal.
            *cell = cell.replace(Text::is_unfit, "?");
        }
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADINGS.len()).map(|column| width(column).min(WIDTH_MAX)).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

fn row(Line { seq, record, .. }: &Line) -> [String; HEADINGS.len()] {
    let Record { time, who, role, from, what, before, after, why, of, late } = record.clone();
    let of = of.map(|of| format!(", of line {of}")).unwrap_or_default();
    let late = if late { ", written late" } else { "" };
    let change = if before.is_empty() { after } else { format!("{before} -> {after}") };
    [seq.to_string(), time, who, role, from, format!("{what}{of}{late}"), change, why]
}

/// Writes the result of a verification without a fault.
pub(super) fn write_verified(out: &mut dyn Write, verified: &Verified) -> io::Result<()> {
    let Verified { lines, first, last: Head { seq, hash, .. }, after_head, torn_bytes } = verified;
    let count = counted(usize::try_from(*lines).unwrap_or(usize::MAX), "line");
    match first {
        Some(first) => writeln!(out, "whole: {count}, {first} to {seq}, the last one with hash {hash}")?,
        None => writeln!(out, "whole: {count}")?,
    }
    if *after_head > 0 {
        let count = counted(usize::try_from(*after_head).unwrap_or(usize::MAX), "line");
        writeln!(out, "{count} after the head: written a moment ago, or left by a crash")?;
    }
    if *torn_bytes > 0 {
        writeln!(
            out,
            "{torn_bytes} bytes without an end after the last line: being written, or left by a crash"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_aligned_and_cannot_control_the_terminal() {
        let record = Record {
            time: "2026-12-01T00:00:00Z".to_owned(),
            who: "alice".to_owned(),
            role: "operator".to_owned(),
            from: "10.0.0.1".to_owned(),
            what: "kill on fleet".to_owned(),
            before: "off".to_owned(),
            after: "on".to_owned(),
            why: "a\u{1b}[2\u{202e}".to_owned(),
            of: Some(1),
            late: true,
        };
        let line = Line { seq: 12, record, prev: String::new(), hash: String::new() };
        let mut out = Vec::new();
        write_table(&mut out, &[Ok(line), Err("{}".to_owned())]).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1],
            "12    2026-12-01T00:00:00Z  alice  operator  10.0.0.1  kill on fleet, of line 1, written late    off -> on        a?[2?"
        );
        assert_eq!(lines[0].find("BEFORE"), lines[1].find("off -> on"), "{text}");
        assert!(lines[2].contains("not a line of the log"), "{text}");
    }
}
