//! Buckets and busy keys as tables for operators.

use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use plimsoll_quota::admin::api::{BucketStatus, Buckets, Holds, Reset, ResetDone, Top, TopKey};

use crate::output::counted;

/// The headings of a table of buckets.
const HEADINGS: [&str; 6] = ["KEY", "LEFT", "MAX", "REFILL", "NEXT REFILL (UTC)", "FULL AT (UTC)"];
/// The widest column that is padded.
const WIDTH_MAX: usize = 60;
/// The latest time that is shown as a date, the last second of the year 9999.
const DATE_MAX_MS: u64 = 253_402_300_799_000;

/// Writes buckets as a table.
pub(super) fn write_buckets(out: &mut dyn Write, answer: &Buckets) -> io::Result<()> {
    if answer.buckets.is_empty() {
        return writeln!(out, "no buckets");
    }
    write_table(out, HEADINGS, answer.buckets.iter().map(row))?;
    if answer.next.is_some() {
        writeln!(out, "there are more: raise --limit, or give a longer --prefix")?;
    }
    Ok(())
}

fn row(BucketStatus { key, holds }: &BucketStatus) -> [String; HEADINGS.len()] {
    let time = |time: Option<u64>| time.map_or_else(|| "full".to_owned(), date);
    match *holds {
        Holds::Tokens { tokens, max, refill, every_ms, next_refill_ms, full_at_ms } => {
            let every = humantime::format_duration(Duration::from_millis(every_ms));
            let refill = format!("{refill} every {every}");
            let times = [time(next_refill_ms), time(full_at_ms)];
            let [next, full] = times;
            [key.clone(), tokens.to_string(), max.to_string(), refill, next, full]
        }
        Holds::Throttle { at_rest_ms } => {
            let absent = || "-".to_owned();
            [key.clone(), absent(), absent(), "throttle".to_owned(), absent(), date(at_rest_ms)]
        }
    }
}

/// A time in milliseconds since 1970 in UTC.
fn date(ms: u64) -> String {
    if ms > DATE_MAX_MS {
        return "after the year 9999".to_owned();
    }
    let time = UNIX_EPOCH + Duration::from_millis(ms);
    humantime::format_rfc3339_millis(time).to_string()
}

/// Writes the result of a reset.
pub(super) fn write_reset(out: &mut dyn Write, wanted: &Reset, done: ResetDone) -> io::Result<()> {
    let buckets = counted(usize::try_from(done.buckets).unwrap_or(usize::MAX), "bucket");
    match wanted {
        Reset::Key(key) => writeln!(out, "full again: {buckets} of {key}"),
        Reset::Prefix(prefix) => writeln!(out, "full again: {buckets} beginning with {prefix}"),
    }
}

/// Writes the busiest keys.
pub(super) fn write_top(out: &mut dyn Write, top: &Top) -> io::Result<()> {
    let rows =
        |keys: &[TopKey]| keys.iter().map(|key| [key.key.clone(), key.count.to_string()]).collect::<Vec<_>>();
    if top.asked.is_empty() {
        return writeln!(out, "no key was asked for in the last minutes");
    }
    write_table(out, ["KEY", "ASKED"], rows(&top.asked))?;
    writeln!(out)?;
    if top.refused.is_empty() {
        return writeln!(out, "no key was refused");
    }
    write_table(out, ["KEY", "REFUSED"], rows(&top.refused))
}

/// Writes rows below their headings, in columns.
fn write_table<const N: usize>(
    out: &mut dyn Write,
    headings: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> io::Result<()> {
    let rows: Vec<[String; N]> = std::iter::once(headings.map(ToOwned::to_owned)).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(|column| width(column).min(WIDTH_MAX)).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn bucket(key: &str, holds: Holds) -> BucketStatus {
        BucketStatus { key: key.to_owned(), holds }
    }

    #[test]
    fn buckets_are_shown_with_their_tokens_and_refills() {
        let tokens = |tokens, next_refill_ms, full_at_ms| Holds::Tokens {
            tokens,
            max: 10_000,
            refill: 10_000,
            every_ms: 3_600_000,
            next_refill_ms,
            full_at_ms,
        };
        let hour = 1_790_000_000_000;
        let answer = Buckets {
            buckets: vec![
                bucket("{acme}:api_calls", tokens(7, Some(hour), Some(hour))),
                bucket("{b}:api_calls", tokens(10_000, None, None)),
                bucket("{c}:api_calls", tokens(0, Some(u64::MAX), Some(u64::MAX))),
                bucket("t", Holds::Throttle { at_rest_ms: hour }),
            ],
            next: Some("61".to_owned()),
        };
        let expected = "\
KEY               LEFT   MAX    REFILL           NEXT REFILL (UTC)         FULL AT (UTC)
{acme}:api_calls  7      10000  10000 every 1h   2026-09-21T14:13:20.000Z  2026-09-21T14:13:20.000Z
{b}:api_calls     10000  10000  10000 every 1h   full                      full
{c}:api_calls     0      10000  10000 every 1h   after the year 9999       after the year 9999
t                 -      -      throttle         -                         2026-09-21T14:13:20.000Z
there are more: raise --limit, or give a longer --prefix
";
        let squeezed = |text: &str| {
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        let shown = text(|out| write_buckets(out, &answer));
        assert_eq!(squeezed(&shown), squeezed(expected), "{shown}");
        let column = |line: usize, word: &str| shown.lines().nth(line).unwrap().find(word);
        assert_eq!(column(0, "FULL AT"), column(4, "2026"), "{shown}");
        assert_eq!(text(|out| write_buckets(out, &Buckets::default())), "no buckets\n");
    }

    #[test]
    fn busiest_keys_are_shown_in_two_tables() {
        let key = |key: &str, count| TopKey { key: key.to_owned(), count };
        let top = Top { asked: vec![key("a", 12), key("bb", 3)], refused: vec![key("bb", 2)] };
        let expected = "KEY  ASKED\na    12\nbb   3\n\nKEY  REFUSED\nbb   2\n";
        assert_eq!(text(|out| write_top(out, &top)), expected);
        let unrefused = Top { refused: Vec::new(), ..top };
        assert!(text(|out| write_top(out, &unrefused)).ends_with("no key was refused\n"));
        assert!(text(|out| write_top(out, &Top::default())).starts_with("no key was asked for"));
    }

    #[test]
    fn reset_says_how_many_buckets_are_full_again() {
        let shown = |wanted, buckets| text(|out| write_reset(out, &wanted, ResetDone { buckets }));
        assert_eq!(shown(Reset::Key("a".to_owned()), 1), "full again: 1 bucket of a\n");
        assert_eq!(shown(Reset::Prefix("{a}:".to_owned()), 2), "full again: 2 buckets beginning with {a}:\n");
    }
}
