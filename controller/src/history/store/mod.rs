//! The history on disk: a database of its own in the state directory, because it is written every minute and
//! may be lost, unlike the durable state.
//!
//! `minutes` has one row per minute, the last [`MINUTES_MAX`] of them; `closed` the summary of each bucket's
//! days before the present one; `answers` the last answers of Prometheus servers. Minutes are written first:
//! the summaries follow from them.

mod error;
mod rows;
#[cfg(test)]
mod tests;

pub(crate) use error::HistoryError;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::Rate;
use plimsoll_host::panics::stopped_at_panic;
use plimsoll_host::private_directory;
use plimsoll_policy::learning::{Closed, MINUTES_PER_DAY, Minute};

use crate::history::MinuteSamples;
use error::Fault;

/// The largest number of minutes on disk: 8 days without a gap, so that a week can be exported.
pub(crate) const MINUTES_MAX: usize = 8 * MINUTES_PER_DAY;
/// The largest number of saved answers.
const ANSWERS_MAX: usize = 1_000;
/// The folder in the state directory.
const FOLDER: &str = "history";
/// The room for rows that are in the journal alone. A minute's row is about 30 bytes per bucket.
const MEMTABLE_BYTES: u64 = 1 << 20;
/// Attempts to open a locked database: the threads of one that was just closed may still hold the lock.
const LOCKED_TRIES: usize = 20;
/// The delay between two of them.
const LOCKED_WAIT: Duration = Duration::from_millis(50);
const CACHE_BYTES: u64 = 1 << 20;
const JOURNAL_BYTES: u64 = 64 << 20;
/// The largest file that the database reads as a whole: its version, and the version of a keyspace.
const WHOLE_BYTES_MAX: u64 = 16 << 20;

/// The history on disk.
pub(crate) struct HistoryStore {
    database: Database,
    minutes: Keyspace,
    closed: Keyspace,
    answers: Keyspace,
    rows: usize,
}

/// Reads one row as that of each kind.
pub(crate) fn read_row(key: &[u8], row: &[u8]) -> Restored {
    Restored {
        closed: rows::closed(key, row).into_iter().collect(),
        minutes: rows::minute(key, row).into_iter().collect(),
        answers: rows::answer(key, row).into_iter().collect(),
        loss: None,
    }
}

/// The content of the store when it was opened.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    /// The summary of each bucket's days before the present one.
    pub(crate) closed: BTreeMap<Bucket, Closed>,
    /// The minutes since, oldest first.
    pub(crate) minutes: Vec<MinuteSamples>,
    /// The last good answer to each query, by URL and query.
    pub(crate) answers: Vec<((String, String), Rate)>,
    /// Why an earlier history could not be read, if there was one.
    pub(crate) loss: Option<String>,
}

impl std::fmt::Debug for HistoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HistoryStore").field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl HistoryStore {
    /// Opens the history in the state directory. A damaged one is put aside, and a new one begins.
    ///
    /// # Errors
    /// When the directory cannot be used at present.
    pub(crate) fn open(state: &Path) -> Result<(Self, Restored), HistoryError> {
        let path = state.join(FOLDER);
        Self::open_or_replace(&path).map_err(|fault| HistoryError { path, fault })
    }

    fn open_or_replace(path: &Path) -> Result<(Self, Restored), Fault> {
        match Self::load(path) {
            Err(Fault::Unreadable(reason)) => {
                let aside = aside(path);
                fs::rename(path, &aside).map_err(|error| Fault::Unavailable(error.to_string()))?;
                let loss = format!("{reason}; it was put aside as {}", aside.display());
                let (store, restored) = Self::load(path)?;
                Ok((store, Restored { loss: Some(loss), ..restored }))
            }
            loaded => loaded,
        }
    }

    fn load(path: &Path) -> Result<(Self, Restored), Fault> {
        if path.exists() && !path.is_dir() {
            return Err(Fault::Unavailable("it is no directory".to_owned()));
        }
        if path.is_dir() {
            check_files(path)?;
        }
        let load = || {
            let path = path.to_owned();
            let loaded = stopped_at_panic("history", move || Self::load_from(&path));
            let loaded = loaded.map_err(|error| Fault::Unavailable(error.to_string()))?;
            loaded.unwrap_or_else(|panic| Err(Fault::Unreadable(format!("reading it failed: {panic}"))))
        };
        let mut loaded = load();
        for _ in 0..LOCKED_TRIES {
            if !matches!(loaded, Err(Fault::Locked)) {
                break;
            }
            sleep(LOCKED_WAIT);
            loaded = load();
        }
        loaded
    }

    fn load_from(path: &Path) -> Result<(Self, Restored), Fault> {
        private_directory::create(path).map_err(|error| Fault::Unavailable(error.to_string()))?;
        let database = Database::builder(path)
            .cache_size(CACHE_BYTES)
            .max_journaling_size(JOURNAL_BYTES)
            .worker_threads(1)
            .open()?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
        let minutes = database.keyspace("minutes", options)?;
        let closed = database.keyspace("closed", options)?;
        let answers = database.keyspace("answers", options)?;
        let mut restored = Restored::default();
        for row in answers.iter() {
            let (key, value) = row.into_inner()?;
            restored.answers.push(rows::answer(&key, &value)?);
        }
        for row in closed.iter() {
            let (name, value) = row.into_inner()?;
            let (bucket, closed) = rows::closed(&name, &value)?;
            restored.closed.insert(bucket, closed);
        }
        let since = restored.closed.values().filter_map(|closed| closed.open).min();
        let since = since.map_or(Minute(i64::MIN), |day| day.first_minute());
        let mut store = Self { database, minutes, closed, answers, rows: 0 };
        // Every row is read, so that damage shows now and not in the middle of an export.
        for row in store.minutes.iter() {
            let (key, value) = row.into_inner()?;
            let minute = rows::minute(&key, &value)?;
            store.rows += 1;
            if minute.minute >= since {
                restored.minutes.push(minute);
            }
        }
        Ok((store, restored))
    }

    /// Writes a minute, and deletes the oldest one beyond [`MINUTES_MAX`]. It is on disk when this returns.
    ///
    /// # Errors
    /// When it cannot be written. The store must then be opened again.
    pub(crate) fn write(&mut self, minute: &MinuteSamples) -> Result<(), String> {
        self.put(minute).and_then(|()| self.persist()).map_err(|error| error.to_string())
    }

    fn put(&mut self, minute: &MinuteSamples) -> Result<(), fjall::Error> {
        if minute.samples.is_empty() {
            return Ok(());
        }
        let key = rows::key(minute.minute);
        self.rows += usize::from(!self.minutes.contains_key(key)?);
        self.minutes.insert(key, rows::encode(minute))?;
        while self.rows > MINUTES_MAX {
            let Some(oldest) = self.minutes.first_key_value() else { break };
            self.minutes.remove(oldest.key()?)?;
            self.rows -= 1;
        }
        Ok(())
    }

    /// Writes the summaries of buckets, and deletes those of forgotten buckets.
    ///
    /// # Errors
    /// When it cannot be written. The store must then be opened again.
    pub(crate) fn write_closed(
        &mut self,
        closed: &[(Bucket, Closed)],
        forgotten: &[Bucket],
    ) -> Result<(), String> {
        if closed.is_empty() && forgotten.is_empty() {
            return Ok(());
        }
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncAll));
        for (bucket, closed) in closed {
            let value = serde_json::to_vec(closed).map_err(|error| error.to_string())?;
            batch.insert(&self.closed, bucket.as_str(), value);
        }
        for bucket in forgotten {
            batch.remove(&self.closed, bucket.as_str());
        }
        batch.commit().map_err(|error| error.to_string())
    }

    /// Writes the answer to a query.
    ///
    /// # Errors
    /// When it cannot be written. The store must then be opened again.
    pub(crate) fn write_answer(&mut self, url: &str, query: &str, rate: Rate) -> Result<(), String> {
        let Some(key) = rows::answer_key(url, query) else { return Ok(()) };
        let write = || -> Result<(), fjall::Error> {
            // Answers to queries of earlier policies go with the others once there are too many.
            if self.answers.len()? >= ANSWERS_MAX {
                self.answers.clear()?;
            }
            self.answers.insert(key, rate.per_second().to_be_bytes())
        };
        write().map_err(|error| error.to_string())
    }

    /// Adds samples to minutes. The sample of a bucket in a minute that is there already stays, unless
    /// `replace` is set.
    ///
    /// # Errors
    /// When it cannot be read or written. The store must then be opened again.
    pub(crate) fn merge(
        &mut self,
        minutes: impl IntoIterator<Item = MinuteSamples>,
        replace: bool,
    ) -> Result<(), String> {
        let merge = |store: &mut Self, mut minute: MinuteSamples| -> Result<(), Fault> {
            let key = rows::key(minute.minute);
            if let Some(row) = store.minutes.get(key)? {
                for (bucket, sample) in rows::minute(&key, &row)?.samples {
                    if !replace || !minute.samples.contains_key(&bucket) {
                        minute.samples.insert(bucket, sample);
                    }
                }
            }
            Ok(store.put(&minute)?)
        };
        for minute in minutes {
            merge(self, minute).map_err(|fault| fault.to_string())?;
        }
        self.persist().map_err(|error| error.to_string())
    }

    /// Returns the minutes from `from` up to but not including `to`, oldest first.
    ///
    /// # Errors
    /// When one cannot be read.
    pub(crate) fn range(
        &self,
        from: Minute,
        to: Minute,
    ) -> impl Iterator<Item = Result<MinuteSamples, String>> + use<> {
        self.minutes.range(rows::key(from)..rows::key(to.max(from))).map(|row| {
            let read = || -> Result<MinuteSamples, Fault> {
                let (key, value) = row.into_inner()?;
                rows::minute(&key, &value)
            };
            read().map_err(|fault| fault.to_string())
        })
    }

    fn persist(&self) -> Result<(), fjall::Error> {
        self.database.persist(PersistMode::SyncAll)
    }
}

/// Checks what the database does not: a FIFO in its folder would block it, and without its journal it opens, but loses
/// every write at the next start.
fn check_files(folder: &Path) -> Result<(), Fault> {
    let unavailable = |error: io::Error| Fault::Unavailable(error.to_string());
    let (mut is_empty, mut has_journal, mut folders) = (true, false, vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(unavailable)? {
            let entry = entry.map_err(unavailable)?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(unavailable)?);
            is_empty = false;
            has_journal |= path.extension().is_some_and(|extension| extension == "jnl");
            if kind.is_dir() {
                folders.push(path);
            } else if !kind.is_file() {
                return Err(Fault::Unreadable(format!("{} is not a regular file", path.display())));
            } else if is_read_whole(&path) && entry.metadata().map_err(unavailable)?.len() > WHOLE_BYTES_MAX {
                let reason = format!("{} is larger than {WHOLE_BYTES_MAX} bytes", path.display());
                return Err(Fault::Unreadable(reason));
            }
        }
    }
    if is_empty || has_journal { Ok(()) } else { Err(Fault::Unreadable("its journal is missing".to_owned())) }
}

/// Returns true for files that the database reads as a whole: not for journals and tables.
fn is_read_whole(path: &Path) -> bool {
    let is_journal = path.extension().is_some_and(|extension| extension == "jnl");
    !is_journal && !path.parent().is_some_and(|parent| parent.ends_with("tables"))
}

/// Returns an unused name beside `path`.
fn aside(path: &Path) -> PathBuf {
    let free = (1..).map(|n| path.with_extension(format!("unreadable-{n}"))).find(|path| !path.exists());
    free.unwrap_or_else(|| path.with_extension("unreadable"))
}
