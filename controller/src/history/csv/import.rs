//! Days from a file, checked against the policy, that the history can add to its own.

use std::collections::BTreeMap;

use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::Rate;
use plimsoll_policy::Policy;
use plimsoll_policy::learning::{Day, DaySamples, Minute};

use super::{CsvError, HistoryRow, rows};
use crate::history::Samples;

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Import {
    pub(crate) minutes: BTreeMap<Minute, Samples>,
    /// Rows of the present day, which are ignored: the day is still being counted.
    pub(crate) rows_of_today: usize,
    /// Rows without traffic, which are ignored: such a minute is no sample.
    pub(crate) rows_of_nothing: usize,
}

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
