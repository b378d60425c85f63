//! The history on disk, in the folder `history` of the state directory: one CSV file a day, with the rows of
//! `plimsoll history export`, and the summary of the closed days, so that a start reads the rows of today only. The
//! last answers to queries for limits are kept next to them.
//!
//! A minute is written before anything is learned from it: the summaries follow from the rows.

pub(crate) mod shared;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use plimsoll_core::quantity::Rate;
use plimsoll_host::atomic_file::{replace, sync_directory};
use plimsoll_host::{private_directory, regular_file};
use plimsoll_policy::UnixSeconds;
use plimsoll_policy::learning::{Day, Minute};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::history::csv::{self, HEADER};
use crate::history::{ClosedDays, MinuteSamples, Samples};
use crate::state::store::put_aside;

/// Maximum number of days on disk, so that a week can be exported.
pub(crate) const DAYS_MAX: usize = 8;
/// Maximum size of a file that is read: a day of the longest names takes half of it.
const FILE_BYTES_MAX: usize = 512 << 20;
/// Maximum number of damaged lines that a loss names.
const NAMED_MAX: usize = 5;
const FOLDER: &str = "history";
const CLOSED: &str = "closed.json";
const ANSWERS: &str = "answers.json";
/// A folder of the database that versions before had in this place.
const DATABASE: &str = "keyspaces";

pub(crate) type SavedAnswers = Vec<((String, String), Rate)>;

#[derive(Clone, Debug)]
pub(crate) struct HistoryStore {
    folder: PathBuf,
}

#[derive(Debug, Default)]
pub(crate) struct Restored {
    pub(crate) closed: ClosedDays,
    pub(crate) minutes: Vec<MinuteSamples>,
    pub(crate) answers: SavedAnswers,
    /// Files and lines that could not be read, and their fate.
    pub(crate) losses: Vec<String>,
}

impl HistoryStore {
    pub(crate) fn new(state: &Path) -> Self {
        Self {
            folder: state.join(FOLDER),
        }
    }

    /// Reads the summaries, and the minutes of the days that they do not contain. Damage is a loss, not an error.
    ///
    /// # Errors
    /// When the folder cannot be used at present.
    pub(crate) fn open(&self) -> io::Result<Restored> {
        private_directory::create(&self.folder)?;
        let mut restored = Restored::default();
        let losses = &mut restored.losses;
        if self.folder.join(DATABASE).exists() {
            losses.push(format!(
                "{} has the database of an earlier version, which is not read: export it with that version and import the \
                 file here, then delete the folder {DATABASE} and the files *.jnl beside it",
                self.folder.display()
            ));
        }
        restored.closed = self.read_json(CLOSED, losses)?;
        restored.answers = self.read_json(ANSWERS, losses)?;
        let since = restored
            .closed
            .values()
            .filter_map(|closed| closed.open)
            .min();
        for day in self
            .days()?
            .into_iter()
            .filter(|day| since.is_none_or(|since| *day >= since))
        {
            match self.read_day(day) {
                Ok((minutes, dropped)) => {
                    restored.minutes.extend(minutes);
                    losses.extend(name_dropped(&self.file(day), &dropped));
                }
                Err(error) => losses.push(format!("{}: {error}", self.file(day).display())),
            }
        }
        Ok(restored)
    }

    /// Returns the days that have a file, oldest first.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub(crate) fn days(&self) -> io::Result<Vec<Day>> {
        let mut days = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let date = name.to_str().and_then(|name| name.strip_suffix(".csv"));
            let start = date.and_then(|date| UnixSeconds::parse(&format!("{date}T00:00:00Z")).ok());
            days.extend(start.map(|start| Minute::of_unix(start.as_secs()).day()));
        }
        days.sort_unstable();
        Ok(days)
    }

    /// Reads the minutes of a day. Returns the numbers of the lines that are damaged.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn read_day(&self, day: Day) -> io::Result<(Vec<MinuteSamples>, Vec<usize>)> {
        let (mut minutes, dropped) =
            csv::read_written(&regular_file::read_whole(&self.file(day), FILE_BYTES_MAX)?);
        minutes.retain(|minute| minute.minute.day() == day);
        Ok((minutes, dropped))
    }

    /// Appends a minute to the file of its day. The first one of a day deletes the oldest days beyond [`DAYS_MAX`]. The
    /// minute is on disk when this returns.
    ///
    /// # Errors
    /// When it cannot be written. No part of it is left, if the system allows.
    pub(crate) fn write(&self, minute: &MinuteSamples) -> io::Result<()> {
        if minute.samples.is_empty() {
            return Ok(());
        }
        private_directory::create(&self.folder)?;
        let mut file = regular_file::open_to_append(&self.file(minute.minute.day()))?;
        let before = file.metadata()?.len();
        let mut text = if before == 0 {
            format!("{HEADER}\n")
        } else {
            String::new()
        };
        if !regular_file::ends_with_line(&mut file)? {
            // A crash cut the last line short.
            text.push('\n');
        }
        csv::append(&mut text, minute, &[]);
        if let Err(error) = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_data())
        {
            let _ = file.set_len(before);
            return Err(error);
        }
        if before == 0 {
            self.delete_oldest()?;
        }
        Ok(())
    }

    /// Adds samples to the files of their days, of the last [`DAYS_MAX`] of these days only. An existing sample stays,
    /// unless `replaces` is set.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub(crate) fn merge(
        &self,
        minutes: &BTreeMap<Minute, Samples>,
        replaces: bool,
    ) -> io::Result<()> {
        private_directory::create(&self.folder)?;
        let mut days: BTreeMap<Day, Vec<(&Minute, &Samples)>> = BTreeMap::new();
        for added in minutes {
            days.entry(added.0.day()).or_default().push(added);
        }
        for (day, added) in days.into_iter().rev().take(DAYS_MAX) {
            let known = match self.read_day(day) {
                Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
                read => read?.0,
            };
            let mut merged: BTreeMap<Minute, Samples> = known
                .into_iter()
                .map(|minute| (minute.minute, minute.samples))
                .collect();
            for (minute, samples) in added {
                let merged = merged.entry(*minute).or_default();
                for (bucket, sample) in samples {
                    if replaces || !merged.contains_key(bucket) {
                        merged.insert(bucket.clone(), *sample);
                    }
                }
            }
            let mut text = format!("{HEADER}\n");
            for (minute, samples) in merged {
                csv::append(&mut text, &MinuteSamples { minute, samples }, &[]);
            }
            replace(&self.file(day), text.as_bytes())?;
        }
        self.delete_oldest()
    }

    /// Writes the summaries of the closed days.
    ///
    /// # Errors
    /// When they cannot be written. The earlier ones are kept.
    pub(crate) fn write_closed(&self, closed: &ClosedDays) -> io::Result<()> {
        self.write_json(CLOSED, closed)
    }

    /// Writes the answers to queries.
    ///
    /// # Errors
    /// When they cannot be written. The earlier ones are kept.
    pub(crate) fn write_answers(&self, answers: &SavedAnswers) -> io::Result<()> {
        self.write_json(ANSWERS, answers)
    }

    fn write_json(&self, name: &str, content: &impl Serialize) -> io::Result<()> {
        private_directory::create(&self.folder)?;
        replace(&self.folder.join(name), &serde_json::to_vec(content)?)
    }

    /// Reads a file of the folder. A damaged one is put aside.
    fn read_json<T: DeserializeOwned + Default>(
        &self,
        name: &str,
        losses: &mut Vec<String>,
    ) -> io::Result<T> {
        let path = self.folder.join(name);
        let read = regular_file::read_whole(&path, FILE_BYTES_MAX);
        match read.and_then(|bytes| Ok(serde_json::from_slice(&bytes)?)) {
            Ok(content) => Ok(content),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(T::default()),
            Err(error) => {
                let aside = put_aside(&path)?;
                losses.push(format!(
                    "{}: {error}; it was put aside as {}",
                    path.display(),
                    aside.display()
                ));
                Ok(T::default())
            }
        }
    }

    fn delete_oldest(&self) -> io::Result<()> {
        let days = self.days()?;
        for day in days.iter().take(days.len().saturating_sub(DAYS_MAX)) {
            fs::remove_file(self.file(*day))?;
        }
        sync_directory(&self.folder)
    }

    fn file(&self, day: Day) -> PathBuf {
        let start = UnixSeconds::from_secs(day.first_minute().as_unix()).to_string();
        self.folder.join(format!(
            "{}.csv",
            start.split('T').next().unwrap_or_default()
        ))
    }
}

fn name_dropped(file: &Path, lines: &[usize]) -> Option<String> {
    let first = lines.first()?;
    let named: Vec<String> = lines
        .iter()
        .take(NAMED_MAX)
        .map(ToString::to_string)
        .collect();
    let more = if lines.len() > NAMED_MAX {
        format!(" and {} more", lines.len() - NAMED_MAX)
    } else {
        String::new()
    };
    let (file, named) = (file.display(), named.join(", "));
    Some(format!(
        "{file}:{first}: dropped, because they were cut short or damaged: lines {named}{more}"
    ))
}
