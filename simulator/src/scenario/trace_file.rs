//! Traffic from a CSV file: `t_s,rps` as people write it, or what `plimsoll history export` gives.

use std::path::Path;

use plimsoll_policy::{Field, UnixSeconds};

use super::bytes_up_to;
use super::check::{Checked, within};
use super::loads::RPS_MAX;
use super::spec::TraceSpec;
use crate::traffic::Load;

/// A week of a hundred buckets, minute by minute, and more.
const BYTES_MAX: usize = 64 << 20;
/// The columns of a history. The last one may be left out; minutes that are not clean were offered as well.
const HISTORY: [&str; 4] = ["time_utc", "bucket", "offered_rps", "clean"];

/// How the rows of a file read.
#[derive(Clone, Copy)]
enum Columns {
    /// Seconds and requests/s.
    Plain,
    /// A history, with so many columns; only the rows of one bucket count, from the first of them on.
    History(usize),
}

/// Reads a file; of a history the rows of `bucket`.
pub(crate) fn read(spec: &TraceSpec, field: &Field<'_>, folder: &Path, bucket: &str) -> Checked<Load> {
    let speed = spec.speed.map_or(Ok(1.0), |speed| within(speed, &field.then("speed"), 1e-3, 1e6))?;
    let field = field.then("csv");
    let path = folder.join(&spec.csv);
    let hint = "a CSV file with the columns t_s,rps or time_utc,bucket,offered_rps, found from the scenario's own folder";
    let bytes = bytes_up_to(&path, BYTES_MAX).map_err(|e| field.refuse(e, hint))?;
    if bytes.len() > BYTES_MAX {
        return Err(field.refuse(format_args!("{} has more than {BYTES_MAX} bytes", spec.csv), hint));
    }
    let text = String::from_utf8(bytes).map_err(|e| field.refuse(e, hint))?;
    let rows = rows(&text, bucket)
        .map_err(|(line, why)| field.refuse(format_args!("{}:{line}: {why}", spec.csv), hint))?;
    Ok(Load::Trace { rows, speed })
}

/// The rows as seconds and requests/s; what is wrong comes with its line.
fn rows(text: &str, bucket: &str) -> Result<Vec<(f64, f64)>, (usize, String)> {
    let mut lines = text.lines().zip(1_usize..).filter(|(line, _)| !line.trim().is_empty());
    let names: Option<Vec<&str>> = lines.next().map(|(line, _)| line.split(',').map(str::trim).collect());
    let columns = match names.as_deref() {
        Some(["t_s", "rps"]) => Columns::Plain,
        Some(names) if names == HISTORY || names == &HISTORY[..3] => Columns::History(names.len()),
        _ => return Err((1, "the first line is not t_s,rps".to_owned())),
    };
    let mut rows: Vec<(f64, f64)> = Vec::new();
    let mut began = None;
    for (line, number) in lines {
        let wrong = |why: &str| (number, why.to_owned());
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let (t, rate) = match (columns, &cells[..]) {
            (Columns::Plain, [t, rate]) => {
                let (t, rate) = (t.parse::<f64>().ok(), rate.parse::<f64>().ok());
                t.zip(rate).ok_or_else(|| wrong("not two numbers"))?
            }
            (Columns::Plain, _) => return Err(wrong("not two numbers")),
            (Columns::History(count), [time, of_bucket, rate, ..]) if cells.len() == count => {
                let time =
                    UnixSeconds::parse(time).map_err(|error| wrong(&format!("time_utc is {error}")))?;
                let rate = rate.parse::<f64>().map_err(|_| wrong("offered_rps is not a number"))?;
                if *of_bucket != bucket {
                    continue;
                }
                let began = *began.get_or_insert(time.as_secs());
                ((time.as_secs() - began) as f64, rate)
            }
            (Columns::History(count), _) => return Err(wrong(&format!("not {count} values"))),
        };
        if !(0.0..=RPS_MAX).contains(&rate) {
            return Err(wrong("rps is out of range"));
        }
        if !t.is_finite() || rows.last().is_some_and(|(before, _)| *before >= t) {
            return Err(wrong("t_s is not later than in the row before"));
        }
        rows.push((t, rate));
    }
    if rows.is_empty() {
        let why = match columns {
            Columns::Plain => "there are no rows".to_owned(),
            Columns::History(_) => format!("there are no rows of bucket {bucket}"),
        };
        return Err((1, why));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_the_traffic_of_one_bucket() {
        let text = "time_utc,bucket,offered_rps,clean\n2026-11-20T23:59:00Z,other,9,true\n\
                    2026-11-21T00:00:00Z,shop,100.5,true\n2026-11-21T00:00:00Z,other,7,true\n\
                    2026-11-21T00:01:00Z,shop,110,false\n2026-11-21T00:04:00Z,shop,90,true\n";
        assert_eq!(rows(text, "shop").unwrap(), [(0.0, 100.5), (60.0, 110.0), (240.0, 90.0)]);
        assert_eq!(rows(text, "other").unwrap().len(), 2);
        assert_eq!(rows(text, "none"), Err((1, "there are no rows of bucket none".to_owned())));
        let short = "time_utc,bucket,offered_rps\r\n2026-11-21T00:00:00Z,shop,1\r\n";
        assert_eq!(rows(short, "shop").unwrap(), [(0.0, 1.0)]);
    }

    #[test]
    fn what_is_wrong_comes_with_its_line() {
        for (text, line, why) in [
            ("", 1, "first line"),
            ("time,rps\n", 1, "first line"),
            ("t_s,rps\n", 1, "no rows"),
            ("t_s,rps\n0,1\n0,2\n", 3, "not later"),
            ("t_s,rps\n0,1,2\n", 2, "not two numbers"),
            ("time_utc,bucket,offered_rps\n2026-11-21T00:00:00Z,shop\n", 2, "not 3 values"),
            ("time_utc,bucket,offered_rps\nnow,shop,1\n", 2, "time_utc"),
            ("time_utc,bucket,offered_rps\n2026-11-21T00:00:00Z,shop,x\n", 2, "not a number"),
            ("time_utc,bucket,offered_rps\n2026-11-21T00:00:00Z,shop,-1\n", 2, "out of range"),
        ] {
            let (at, said) = rows(text, "shop").unwrap_err();
            assert_eq!(at, line, "{text}");
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
