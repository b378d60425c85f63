//! The history as CSV, `time_utc,bucket,offered_rps` and optionally `clean`: what `plimsoll history export`
//! writes, and what `import` and the traffic of a simulated scenario are read from.

pub(crate) mod import;
#[cfg(test)]
mod tests;

use ::csv::{
    DeserializeErrorKind, Error, ErrorKind, ReaderBuilder, StringRecord, Trim, Writer, WriterBuilder,
};
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::Rate;
use plimsoll_policy::UnixSeconds;
use plimsoll_policy::learning::Sample;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::history::MinuteSamples;

/// The columns of an exported history. The last one may be left out of a file that is read.
pub const COLUMNS: [&str; 4] = ["time_utc", "bucket", "offered_rps", "clean"];
/// Columns that a file must have.
const COLUMNS_MIN: usize = 3;

/// One row: the traffic of one bucket in one minute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryRow {
    /// A time in the minute, in UTC.
    #[serde(serialize_with = "write_time", deserialize_with = "read_time")]
    pub time_utc: UnixSeconds,
    /// The bucket.
    pub bucket: Bucket,
    /// Requests/s offered, over all zones; written with three decimals.
    #[serde(serialize_with = "write_rate", deserialize_with = "read_rate")]
    pub offered_rps: Rate,
    /// True if nothing was refused, and nothing would have been: only such minutes are learned from. True if
    /// left out.
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

/// Writes minutes as rows, in chunks that can be sent on.
#[derive(Debug)]
pub(crate) struct HistoryWriter {
    rows: Writer<Vec<u8>>,
}

/// Reads the rows of a file, each with its line.
///
/// # Errors
/// When the first line does not name the columns. Every row may be an error of its own.
pub fn rows(text: &str) -> Result<impl Iterator<Item = Result<(usize, HistoryRow), CsvError>>, CsvError> {
    let mut reader = ReaderBuilder::new().flexible(true).trim(Trim::All).from_reader(text.as_bytes());
    let columns = reader.headers().map_err(|error| CsvError::of(&error, text))?.clone();
    if columns != COLUMNS[..] && columns != COLUMNS[..COLUMNS_MIN] {
        let (least, most) = (COLUMNS[..COLUMNS_MIN].join(","), COLUMNS.join(","));
        return Err(CsvError { line: 1, reason: format!("the first line is not {least} or {most}") });
    }
    let is_blank = |record: &StringRecord| record.len() == 1 && record[0].is_empty();
    let records = reader.into_records().filter(move |record| !record.as_ref().is_ok_and(is_blank));
    Ok(records.map(move |record| {
        let record = record.map_err(|error| CsvError::of(&error, text))?;
        let line = line_of(record.position(), text);
        if record.len() != columns.len() {
            let reason = format!("{} values, not {}", record.len(), columns.len());
            return Err(CsvError { line, reason });
        }
        let row = record.deserialize(Some(&columns)).map_err(|error| CsvError::of(&error, text))?;
        Ok((line, row))
    }))
}

// === impl HistoryRow ===

impl HistoryRow {
    /// Returns the row as the sample of its minute.
    pub(crate) const fn sample(&self) -> Sample {
        Sample { offered: self.offered_rps, clean: self.clean }
    }
}

fn write_time<S: Serializer>(time: &UnixSeconds, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(time)
}

fn read_time<'de, D: Deserializer<'de>>(from: D) -> Result<UnixSeconds, D::Error> {
    let text = String::deserialize(from)?;
    UnixSeconds::parse(&text).map_err(|error| D::Error::custom(format_args!("time_utc is {error}")))
}

fn write_rate<S: Serializer>(rate: &Rate, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{:.3}", rate.per_second()))
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
        Self { line: line_of(error.position(), text), reason }
    }
}

/// Returns the line of a record, from 1. The reader counts blank lines and the second byte of a line's end to
/// the next record.
#[must_use]
pub fn line_of(position: Option<&::csv::Position>, text: &str) -> usize {
    let Some(position) = position else { return 1 };
    let start = usize::try_from(position.byte()).unwrap_or(usize::MAX).min(text.len());
    let (before, record) = text.as_bytes().split_at(start);
    let skipped = record.iter().take_while(|byte| byte.is_ascii_whitespace());
    1 + before.iter().chain(skipped).filter(|byte| **byte == b'\n').count()
}

// === impl HistoryWriter ===

impl HistoryWriter {
    /// Begins a file with the line of the columns.
    ///
    /// # Errors
    /// Never in practice: memory accepts every write.
    pub(crate) fn new() -> Result<Self, Error> {
        let mut writer = Self { rows: rows_writer() };
        writer.rows.write_record(COLUMNS)?;
        Ok(writer)
    }

    /// Writes the rows of one minute; if `buckets` is not empty, only theirs.
    ///
    /// # Errors
    /// Never in practice: memory accepts every write.
    pub(crate) fn write(&mut self, minute: &MinuteSamples, buckets: &[Bucket]) -> Result<(), Error> {
        let time_utc = UnixSeconds::from_secs(minute.minute.as_unix());
        for (bucket, sample) in &minute.samples {
            if buckets.is_empty() || buckets.contains(bucket) {
                let (offered_rps, clean) = (sample.offered, sample.clean);
                self.rows.serialize(HistoryRow { time_utc, bucket: bucket.clone(), offered_rps, clean })?;
            }
        }
        Ok(())
    }

    /// Takes the text written so far if it has `bytes_min` bytes or more.
    ///
    /// # Errors
    /// Never in practice: memory accepts every write.
    pub(crate) fn take(&mut self, bytes_min: usize) -> Result<Option<Vec<u8>>, Error> {
        self.rows.flush()?;
        if self.rows.get_ref().len() < bytes_min {
            return Ok(None);
        }
        let full = std::mem::replace(&mut self.rows, rows_writer());
        full.into_inner().map(Some).map_err(|error| error.into_error().into())
    }
}

fn rows_writer() -> Writer<Vec<u8>> {
    WriterBuilder::new().has_headers(false).from_writer(Vec::new())
}
