//! Traffic from a CSV file: `t_s,rps`, or a history as `plimsoll history export` writes it.

use std::path::Path;

use csv::{ReaderBuilder, StringRecord, Trim};
use plimsoll_controller::history::csv::{COLUMNS, CsvError, line_of, rows as history_rows};
use plimsoll_policy::Field;
use serde::Deserialize;

use super::bounds::{Checked, RPS_MAX, within};
use super::bytes_up_to;
use crate::traffic::Trace;

/// More than a week of a hundred buckets, minute by minute.
const BYTES_MAX: usize = 64 << 20;

/// From `t_s` seconds on, the rate in requests/s.
#[derive(Deserialize)]
struct PlainRow {
    t_s: f64,
    rps: f64,
}

/// Line in the file, time in seconds, and the rate in requests/s from then on.
type Point = (usize, f64, f64);

/// Reads a file; of a history only the rows of `bucket`.
pub(crate) fn read(
    trace: &mut Trace,
    field: &Field<'_>,
    folder: &Path,
    bucket: &str,
) -> Checked<()> {
    within(trace.speed, &field.then("speed"), 1e-3, 1e6)?;
    let field = field.then("csv");
    let path = folder.join(&trace.csv);
    let hint = "a CSV file with the columns t_s,rps or time_utc,bucket,offered_rps; its path is relative to the \
                scenario";
    let bytes = bytes_up_to(&path, BYTES_MAX).map_err(|e| field.refuse(e, hint))?;
    if bytes.len() > BYTES_MAX {
        return Err(field.refuse(
            format_args!("{} has more than {BYTES_MAX} bytes", trace.csv),
            hint,
        ));
    }
    let text = String::from_utf8(bytes).map_err(|e| field.refuse(e, hint))?;
    trace.rows = rows(&text, bucket).map_err(|CsvError { line, reason }| {
        field.refuse(format_args!("{}:{line}: {reason}", trace.csv), hint)
    })?;
    Ok(())
}

/// Returns the rows as seconds and requests/s.
fn rows(text: &str, bucket: &str) -> Result<Vec<(f64, f64)>, CsvError> {
    let is_history = text
        .trim_start_matches('\u{feff}')
        .trim_start()
        .starts_with(COLUMNS[0]);
    let points = if is_history {
        of_history(text, bucket)?
    } else {
        plain(text)?
    };
    let mut rows: Vec<(f64, f64)> = Vec::with_capacity(points.len());
    for (line, t, rate) in points {
        let reject = |reason: &str| {
            Err(CsvError {
                line,
                reason: reason.to_owned(),
            })
        };
        if !(0.0..=RPS_MAX).contains(&rate) {
            return reject("rps is out of range");
        }
        if !t.is_finite() || rows.last().is_some_and(|(before, _)| *before >= t) {
            return reject("t_s is not later than in the row before");
        }
        rows.push((t, rate));
    }
    if rows.is_empty() {
        let of_bucket = if is_history {
            format!(" of bucket {bucket}")
        } else {
            String::new()
        };
        return Err(CsvError {
            line: 1,
            reason: format!("there are no rows{of_bucket}"),
        });
    }
    Ok(rows)
}

fn plain(text: &str) -> Result<Vec<Point>, CsvError> {
    let mut reader = ReaderBuilder::new()
        .flexible(true)
        .trim(Trim::All)
        .from_reader(text.as_bytes());
    let first_line = || CsvError {
        line: 1,
        reason: "the first line is not t_s,rps".to_owned(),
    };
    let columns = reader.headers().map_err(|_| first_line())?.clone();
    if columns != ["t_s", "rps"][..] {
        return Err(first_line());
    }
    let mut points = Vec::new();
    let is_blank = |record: &StringRecord| record.len() == 1 && record[0].is_empty();
    for record in reader
        .into_records()
        .filter(|record| !record.as_ref().is_ok_and(is_blank))
    {
        let position = record
            .as_ref()
            .map_or_else(csv::Error::position, StringRecord::position);
        let line = line_of(position, text);
        let row = record.ok().filter(|record| record.len() == columns.len());
        let row = row.and_then(|record| record.deserialize::<PlainRow>(Some(&columns)).ok());
        let reject = || CsvError {
            line,
            reason: "not two numbers".to_owned(),
        };
        let PlainRow { t_s, rps } = row.ok_or_else(reject)?;
        points.push((line, t_s, rps));
    }
    Ok(points)
}

/// Returns the rows of one bucket; time starts with the first of them. Minutes that are not clean
/// had traffic as well.
fn of_history(text: &str, bucket: &str) -> Result<Vec<Point>, CsvError> {
    let mut points = Vec::new();
    let mut began = None;
    for row in history_rows(text)? {
        let (line, row) = row?;
        if row.bucket.as_str() == bucket {
            let time = row.time_utc.as_secs();
            let began = *began.get_or_insert(time);
            points.push((line, (time - began) as f64, row.offered_rps.per_second()));
        }
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_gives_the_traffic_of_one_bucket() {
        let text = "time_utc,bucket,offered_rps,clean\n2026-11-20T23:59:00Z,other,9,true\n\
                    2026-11-21T00:00:00Z,shop,100.5,true\n2026-11-21T00:00:00Z,other,7,true\n\
                    2026-11-21T00:01:00Z,shop,110,false\n2026-11-21T00:04:00Z,shop,90,true\n";
        assert_eq!(
            rows(text, "shop").unwrap(),
            [(0.0, 100.5), (60.0, 110.0), (240.0, 90.0)]
        );
        assert_eq!(rows(text, "other").unwrap().len(), 2);
        assert_eq!(
            rows(text, "none"),
            Err(CsvError {
                line: 1,
                reason: "there are no rows of bucket none".to_owned()
            })
        );
        let short = "time_utc,bucket,offered_rps\r\n2026-11-21T00:00:00Z,shop,1\r\n";
        assert_eq!(rows(short, "shop").unwrap(), [(0.0, 1.0)]);
    }

    #[test]
    fn invalid_rows_are_reported_with_their_line() {
        for (text, line, why) in [
            ("", 1, "first line"),
            ("time,rps\n", 1, "first line"),
            ("t_s,rps\n", 1, "no rows"),
            ("t_s,rps\n0,1\n0,2\n", 3, "not later"),
            ("t_s,rps\n0,1,2\n", 2, "not two numbers"),
            (
                "time_utc,bucket,offered_rps\n2026-11-21T00:00:00Z,shop\n",
                2,
                "2 values, not 3",
            ),
            ("time_utc,bucket,offered_rps\nnow,shop,1\n", 2, "time_utc"),
            (
                "time_utc,bucket,offered_rps\n2026-11-21T00:00:00Z,shop,x\n",
                2,
                "not a number",
            ),
            (
                "time_utc,bucket,offered_rps\n2026-11-21T00:00:00Z,shop,-1\n",
                2,
                "from 0 to 1e12",
            ),
        ] {
            let error = rows(text, "shop").unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.reason.contains(why), "{text}: {error}");
        }
    }
}
