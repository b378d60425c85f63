//! The history as CSV, `time_utc,bucket,offered_rps` and optionally `clean`: what `plimsoll history export`
//! writes, and what `import` and the traffic of a simulated scenario are read from.

pub(crate) mod import;
#[cfg(test)]
mod tests;

use ::csv::{DeserializeErrorKind, Error, ErrorKind, ReaderBuilder, StringRecord, Trim};
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::Rate;
use plimsoll_policy::UnixSeconds;
use plimsoll_policy::learning::{Minute, Sample};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::history::MinuteSamples;

/// The columns of an exported history. The last one may be left out of a file that is read.
pub const COLUMNS: [&str; 4] = ["time_utc", "bucket", "offered_rps", "clean"];
pub(crate) const HEADER: &str = "time_utc,bucket,offered_rps,clean";
const COLUMNS_MIN: usize = 3;

/// One row: the traffic of one bucket in one minute.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct HistoryRow {
    /// A time in the minute, in UTC.
    #[serde(deserialize_with = "read_time")]
    pub time_utc: UnixSeconds,
    /// The bucket.
    pub bucket: Bucket,
    /// Requests/s offered, over all zones; written with three decimals.
    #[serde(deserialize_with = "read_rate")]
    pub offered_rps: Rate,
    /// True if at most 5 % was refused or would have been, and nothing was killed: only such minutes are learned
    /// from. True if left out.
    #[serde(default = "clean_if_absent", deserialize_with = "read_clean")]
    pub clean: bool,
}

/// An error in a file, with its line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct CsvError {
    /// The line, from 1.
    pub line: usize,
    /// The reason, and what to do.
    pub reason: String,
}

/// Reads the rows of a file, each with its line.
///
/// # Errors
/// When the first line does not name the columns. Every row may be its own error.
pub fn rows(
    text: &str,
) -> Result<impl Iterator<Item = Result<(usize, HistoryRow), CsvError>>, CsvError> {
    let mut reader = ReaderBuilder::new()
        .flexible(true)
        .trim(Trim::All)
        .from_reader(text.as_bytes());
    let columns = reader
        .headers()
        .map_err(|error| CsvError::of(&error, text))?
        .clone();
    if columns != COLUMNS[..] && columns != COLUMNS[..COLUMNS_MIN] {
        let (least, most) = (COLUMNS[..COLUMNS_MIN].join(","), COLUMNS.join(","));
        return Err(CsvError {
            line: 1,
            reason: format!("the first line is not {least} or {most}"),
        });
    }
    let is_blank = |record: &StringRecord| record.len() == 1 && record[0].is_empty();
    let records = reader
        .into_records()
        .filter(move |record| !record.as_ref().is_ok_and(is_blank));
    Ok(records.map(move |record| {
        let record = record.map_err(|error| CsvError::of(&error, text))?;
        let line = line_of(record.position(), text);
        if record.len() != columns.len() {
            let reason = format!("{} values, not {}", record.len(), columns.len());
            return Err(CsvError { line, reason });
        }
        let row = record
            .deserialize(Some(&columns))
            .map_err(|error| CsvError::of(&error, text))?;
        Ok((line, row))
    }))
}

// === impl HistoryRow ===

impl HistoryRow {
    pub(crate) const fn sample(&self) -> Sample {
        Sample {
            offered: self.offered_rps,
            clean: self.clean,
        }
    }
}

fn read_time<'de, D: Deserializer<'de>>(from: D) -> Result<UnixSeconds, D::Error> {
    let text = String::deserialize(from)?;
    UnixSeconds::parse(&text).map_err(|error| D::Error::custom(format_args!("time_utc is {error}")))
}

fn read_rate<'de, D: Deserializer<'de>>(from: D) -> Result<Rate, D::Error> {
    let number: Option<f64> = String::deserialize(from)?.parse().ok();
    let rate = number.and_then(|number| Rate::new(number).ok());
    rate.ok_or_else(|| D::Error::custom("offered_rps is not a number of requests/s from 0 to 1e12"))
}

fn read_clean<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    match String::deserialize(from)?.as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(D::Error::custom("clean is neither true nor false")),
    }
}

const fn clean_if_absent() -> bool {
    true
}

// === impl CsvError ===

impl CsvError {
    fn of(error: &Error, text: &str) -> Self {
        let reason = match error.kind() {
            ErrorKind::Deserialize { err, .. } => match err.kind() {
                DeserializeErrorKind::Message(reason) => reason.clone(),
                other => other.to_string(),
            },
            _ => error.to_string(),
        };
        Self {
            line: line_of(error.position(), text),
            reason,
        }
    }
}

/// Returns the line of a record, from 1. The reader counts blank lines and the second byte of a line's end to
/// the next record.
pub fn line_of(position: Option<&::csv::Position>, text: &str) -> usize {
    let Some(position) = position else { return 1 };
    let start = usize::try_from(position.byte())
        .unwrap_or(usize::MAX)
        .min(text.len());
    let (before, record) = text.as_bytes().split_at(start);
    let skipped = record.iter().take_while(|byte| byte.is_ascii_whitespace());
    1 + before
        .iter()
        .chain(skipped)
        .filter(|byte| **byte == b'\n')
        .count()
}

// === Files of the history ===

/// Appends the rows of a minute; if `buckets` is not empty, only theirs.
pub(crate) fn append(text: &mut String, minute: &MinuteSamples, buckets: &[Bucket]) {
    let time = UnixSeconds::from_secs(minute.minute.as_unix());
    for (bucket, sample) in &minute.samples {
        if buckets.is_empty() || buckets.contains(bucket) {
            let offered = sample.offered.per_second();
            text.push_str(&format!("{time},{bucket},{offered:.3},{}\n", sample.clean));
        }
    }
}

/// Reads the rows that a controller wrote, as minutes in the order of time. Returns the numbers of the lines that are
/// not rows, because a crash cut them short or the disk damaged them. Rows that are older than the row before are left
/// out: the clock was set back.
pub(crate) fn read_written(bytes: &[u8]) -> (Vec<MinuteSamples>, Vec<usize>) {
    let (mut minutes, mut dropped): (Vec<MinuteSamples>, _) = (Vec::new(), Vec::new());
    let mut latest: (&str, Minute) = ("", Minute(i64::MIN));
    for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = std::str::from_utf8(line).unwrap_or("damaged");
        if line.is_empty() || (at == 0 && line == HEADER) {
            continue;
        }
        let Some((time, bucket, sample)) = written_row(line) else {
            dropped.push(at + 1);
            continue;
        };
        if time != latest.0 {
            // One minute has up to a thousand rows.
            let Ok(unix) = UnixSeconds::parse(time) else {
                dropped.push(at + 1);
                continue;
            };
            latest = (time, Minute::of_unix(unix.as_secs()));
        }
        let minute = latest.1;
        match minutes.last_mut() {
            Some(last) if last.minute > minute => {}
            Some(last) if last.minute == minute => {
                last.samples.entry(bucket).or_insert(sample);
            }
            _ => minutes.push(MinuteSamples {
                minute,
                samples: [(bucket, sample)].into(),
            }),
        }
    }
    (minutes, dropped)
}

fn written_row(line: &str) -> Option<(&str, Bucket, Sample)> {
    let [time, bucket, offered, clean] = line.split(',').collect::<Vec<_>>()[..] else {
        return None;
    };
    let offered = Rate::new(offered.parse().ok()?)
        .ok()
        .filter(|offered| *offered > Rate::ZERO)?;
    Some((
        time,
        Bucket::new(bucket).ok()?,
        Sample {
            offered,
            clean: clean.parse().ok()?,
        },
    ))
}
