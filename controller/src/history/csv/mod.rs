//! The history as CSV, `time_utc,bucket,offered_rps` and optionally `clean`: what `plimsoll history export`
//! writes, and what `import` and the traffic of a simulated scenario are read from.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ::csv::{DeserializeErrorKind, Error, ErrorKind, ReaderBuilder, StringRecord, Trim};
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::Rate;
use plimsoll_policy::learning::{Day, DaySamples, Minute, Sample};
use plimsoll_policy::{Policy, UnixSeconds};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::history::{MinuteSamples, Samples};

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

/// Days from a file, checked against the policy, that the history can add to its own.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Import {
    pub(crate) minutes: BTreeMap<Minute, Samples>,
    /// Rows of the present day, which are ignored: the day is still being counted.
    pub(crate) rows_of_today: usize,
    /// Rows without traffic, which are ignored: such a minute is no sample.
    pub(crate) rows_of_nothing: usize,
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

// === impl Import ===

impl Import {
    /// Reads a file. `today` is the present day.
    ///
    /// # Errors
    /// With the first line that is wrong.
    pub(crate) fn parse(text: &str, policy: &Policy, today: Day) -> Result<Self, CsvError> {
        let mut import = Self::default();
        for row in rows(text)? {
            let (line, row) = row?;
            import
                .add(row, policy, today)
                .map_err(|reason| CsvError { line, reason })?;
        }
        Ok(import)
    }

    fn add(&mut self, row: HistoryRow, policy: &Policy, today: Day) -> Result<(), String> {
        let HistoryRow {
            time_utc,
            ref bucket,
            offered_rps,
            ..
        } = row;
        if policy.bucket(bucket).is_none() {
            return Err(format!(
                "the policy has no entry for bucket {bucket}; add one, or leave its rows out"
            ));
        }
        let minute = Minute::of_unix(time_utc.as_secs());
        if minute.day() > today {
            return Err(format!("{time_utc} lies in the future"));
        }
        if minute.day() == today {
            self.rows_of_today += 1;
            return Ok(());
        }
        if offered_rps == Rate::ZERO {
            self.rows_of_nothing += 1;
            return Ok(());
        }
        let sample = row.sample();
        let before = self
            .minutes
            .entry(minute)
            .or_default()
            .insert(row.bucket, sample);
        if before.is_some() {
            return Err(
                "this minute of this bucket was given before; write one row for each minute"
                    .to_owned(),
            );
        }
        Ok(())
    }

    pub(crate) fn days(&self) -> BTreeMap<(Bucket, Day), DaySamples> {
        let mut days: BTreeMap<(Bucket, Day), DaySamples> = BTreeMap::new();
        for (minute, samples) in &self.minutes {
            for (bucket, sample) in samples {
                days.entry((bucket.clone(), minute.day()))
                    .or_default()
                    .record(*minute, *sample);
            }
        }
        days
    }
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

/// Returns the line of a record, from 1. A record's position lies before the blank lines, and the second byte of a
/// line's end, that precede it.
pub fn line_of(position: Option<&::csv::Position>, text: &str) -> usize {
    let Some(position) = position else { return 1 };
    let at = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let from = text.as_bytes().get(at(position.byte())..);
    let skipped = from.into_iter().flatten();
    let skipped = skipped.take_while(|byte| byte.is_ascii_whitespace());
    at(position.line()) + skipped.filter(|byte| **byte == b'\n').count()
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
/// out: the clock was set back. Unlike [`rows`], it keeps what is whole.
pub(crate) fn read_written(bytes: &[u8]) -> (Vec<MinuteSamples>, Vec<usize>) {
    let (mut minutes, mut dropped): (Vec<MinuteSamples>, _) = (Vec::new(), Vec::new());
    let mut last_parsed: (&str, Minute) = ("", Minute(i64::MIN));
    for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = std::str::from_utf8(line).unwrap_or("damaged");
        if line.is_empty() || (at == 0 && line == HEADER) {
            continue;
        }
        let Some((time, bucket, sample)) = written_row(line) else {
            dropped.push(at + 1);
            continue;
        };
        // Up to a thousand rows share a minute, whose time is parsed once.
        if time != last_parsed.0 {
            let Ok(unix) = UnixSeconds::parse(time) else {
                dropped.push(at + 1);
                continue;
            };
            last_parsed = (time, Minute::of_unix(unix.as_secs()));
        }
        let minute = last_parsed.1;
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
