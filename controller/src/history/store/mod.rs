//! Where the history is kept: a database of its own in the state directory, because it is written every minute and may be
//! lost, which the durable state is not.
//!
//! `minutes` has one row for each minute, the last [`MINUTES_MAX`] of them; `closed` what each bucket's days before the
//! present one came to, and `answers` what Prometheus servers said last. Minutes are written first: what the days come to follows from them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, LsmError, PersistMode};
use plimsoll_policy::learning::{Closed, MINUTES_PER_DAY, Minute};
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::Rate;

use crate::history::MinuteSamples;

mod rows;

/// Minutes that are kept: 8 days without a gap, so that a week can be exported.
pub const MINUTES_MAX: usize = 8 * MINUTES_PER_DAY;
/// Answers to queries that are kept.
const ANSWERS_MAX: usize = 1_000;
/// The folder in the state directory.
const FOLDER: &str = "history";
/// What is not on disk in sorted form yet, at most. A minute's row is about 30 bytes for each bucket.
const MEMTABLE_BYTES: u64 = 1 << 20;
/// A database that was closed a moment ago may still be locked by its own threads.
const LOCKED_TRIES: usize = 20;
const LOCKED_WAIT: Duration = Duration::from_millis(50);
const CACHE_BYTES: u64 = 1 << 20;
const JOURNAL_BYTES: u64 = 64 << 20;

/// The history on disk.
pub struct HistoryStore {
    database: Database,
    minutes: Keyspace,
    closed: Keyspace,
    answers: Keyspace,
    rows: usize,
}

/// What was found when the store was opened.
#[derive(Debug, Default)]
pub struct Kept {
    /// What the days before the present one came to.
    pub closed: BTreeMap<Bucket, Closed>,
    /// The minutes since, in their order.
    pub minutes: Vec<MinuteSamples>,
    /// The last good answer to each query, by URL and query.
    pub answers: Vec<((String, String), Rate)>,
    /// Why earlier history is not part of it, if there was some that could not be read.
    pub loss: Option<String>,
}

/// Why the history cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// It cannot be used now; it may be later.
    #[error("{}: {reason}; free some space or make it writable", path.display())]
    Unavailable {
        /// Where.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// What is there is no history.
    #[error("{}: {reason}", path.display())]
    Unreadable {
        /// Where.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl std::fmt::Debug for HistoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HistoryStore").field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl HistoryStore {
    /// Opens the history in the state directory. One that is there but cannot be read is put aside, and a new one begins.
    ///
    /// # Errors
    /// When the directory cannot be used now.
    pub fn open(state: &Path) -> Result<(Self, Kept), HistoryError> {
        let path = state.join(FOLDER);
        match Self::load(&path) {
            Err(HistoryError::Unreadable { reason, .. }) => {
                let aside = aside(&path);
                fs::rename(&path, &aside).map_err(|error| unavailable(&path, &error))?;
                let loss = format!("{reason}; it was put aside as {}", aside.display());
                let (store, kept) = Self::load(&path)?;
                Ok((store, Kept { loss: Some(loss), ..kept }))
            }
            loaded => loaded,
        }
    }

    fn load(path: &Path) -> Result<(Self, Kept), HistoryError> {
        if path.exists() && !path.is_dir() {
            return Err(unavailable(path, &"it is no directory"));
        }
        // Without its journal the database opens all the same, and what is then written is gone with the next start.
        if path.is_dir() && !has_journal(path).map_err(|error| unavailable(path, &error))? {
            return Err(HistoryError::Unreadable {
                path: path.to_owned(),
                reason: "its journal is missing".to_owned(),
            });
        }
        // What is read here may be anything. It must not keep the controller from starting.
        let load = || {
            let loaded = catch_unwind(AssertUnwindSafe(|| Self::load_from(path)));
            loaded.unwrap_or_else(|_| Err(Fault::Unreadable("reading it panicked".to_owned())))
        };
        let mut loaded = load();
        for _ in 0..LOCKED_TRIES {
            if !matches!(loaded, Err(Fault::Locked)) {
                break;
            }
            sleep(LOCKED_WAIT);
            loaded = load();
        }
        loaded.map_err(|fault| fault.at(path))
    }

    fn load_from(path: &Path) -> Result<(Self, Kept), Fault> {
        let database = Database::builder(path)
            .cache_size(CACHE_BYTES)
            .max_journaling_size(JOURNAL_BYTES)
            .worker_threads(1)
            .open()?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
        let minutes = database.keyspace("minutes", options)?;
        let closed = database.keyspace("closed", options)?;
        let answers = database.keyspace("answers", options)?;
        let mut kept = Kept::default();
        for row in answers.iter() {
            let (key, value) = row.into_inner()?;
            kept.answers.push(rows::answer(&key, &value)?);
        }
        for row in closed.iter() {
            let (name, value) = row.into_inner()?;
            let (bucket, closed) = rows::closed(&name, &value)?;
            kept.closed.insert(bucket, closed);
        }
        let since = kept.closed.values().filter_map(|closed| closed.open).min();
        let since = since.map_or(Minute(i64::MIN), |day| day.first_minute());
        let mut store = Self { database, minutes, closed, answers, rows: 0 };
        // Every row is read, so that what cannot be is found now and not in the middle of an export.
        for row in store.minutes.iter() {
            let (key, value) = row.into_inner()?;
            let minute = rows::minute(&key, &value)?;
            store.rows += 1;
            if minute.minute >= since {
                kept.minutes.push(minute);
            }
        }
        Ok((store, kept))
    }

    /// Writes a minute, and forgets the oldest one when there are too many. It is on disk when this returns.
    ///
    /// # Errors
    /// When it cannot be written. The store must then be opened again.
    pub fn write(&mut self, minute: &MinuteSamples) -> Result<(), String> {
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

    /// Writes what days came to, and forgets buckets.
    ///
    /// # Errors
    /// When it cannot be written. The store must then be opened again.
    pub fn write_closed(&mut self, closed: &[(Bucket, Closed)], gone: &[Bucket]) -> Result<(), String> {
        if closed.is_empty() && gone.is_empty() {
            return Ok(());
        }
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncAll));
        for (bucket, closed) in closed {
            let value = serde_json::to_vec(closed).map_err(|error| error.to_string())?;
            batch.insert(&self.closed, bucket.as_str(), value);
        }
        for bucket in gone {
            batch.remove(&self.closed, bucket.as_str());
        }
        batch.commit().map_err(|error| error.to_string())
    }

    /// Keeps the answer to a query. Nothing is lost if it is lost.
    ///
    /// # Errors
    /// When it cannot be written. The store must then be opened again.
    pub fn write_answer(&mut self, url: &str, query: &str, rate: Rate) -> Result<(), String> {
        let Some(key) = rows::answer_key(url, query) else { return Ok(()) };
        let write = || -> Result<(), fjall::Error> {
            // One that is not asked any more is forgotten with the others when there are too many.
            if self.answers.len()? >= ANSWERS_MAX {
                self.answers.clear()?;
            }
            self.answers.insert(key, rate.per_second().to_be_bytes())
        };
        write().map_err(|error| error.to_string())
    }

    /// Adds samples to minutes that are kept, or would be. What is there of a bucket in a minute stays, unless `replace`
    /// says otherwise.
    ///
    /// # Errors
    /// When it cannot be read or written. The store must then be opened again.
    pub fn merge(
        &mut self,
        minutes: impl IntoIterator<Item = MinuteSamples>,
        replace: bool,
    ) -> Result<(), String> {
        let merge = |store: &mut Self, mut minute: MinuteSamples| -> Result<(), Fault> {
            let key = rows::key(minute.minute);
            if let Some(there) = store.minutes.get(key)? {
                let there = rows::minute(&key, &there)?.samples;
                for (bucket, sample) in there {
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

    /// The minutes from `from` up to but not including `to`, in their order.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn range(
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

/// Why reading went wrong.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("another process has it open")]
    Locked,
    #[error("{0}")]
    Unavailable(String),
    #[error("{0}")]
    Unreadable(String),
}

impl Fault {
    fn at(self, path: &Path) -> HistoryError {
        let path = path.to_owned();
        match self {
            Self::Locked => HistoryError::Unavailable { path, reason: Self::Locked.to_string() },
            Self::Unavailable(reason) => HistoryError::Unavailable { path, reason },
            Self::Unreadable(reason) => HistoryError::Unreadable { path, reason },
        }
    }
}

impl From<fjall::Error> for Fault {
    fn from(error: fjall::Error) -> Self {
        let reason = error.to_string();
        match &error {
            fjall::Error::Io(io) | fjall::Error::Storage(LsmError::Io(io)) if is_passing(io) => {
                Self::Unavailable(reason)
            }
            fjall::Error::Locked => Self::Locked,
            _ => Self::Unreadable(reason),
        }
    }
}

/// Whether it is the disk that is at fault, and not what is on it.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{
        FileTooLarge, NotADirectory, OutOfMemory, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem,
        StorageFull,
    };
    matches!(
        error.kind(),
        FileTooLarge
            | NotADirectory
            | OutOfMemory
            | PermissionDenied
            | QuotaExceeded
            | ReadOnlyFilesystem
            | StorageFull
    )
}

/// Whether a folder has the journal of a database, or nothing at all.
fn has_journal(path: &Path) -> io::Result<bool> {
    let mut is_empty = true;
    for entry in fs::read_dir(path)? {
        is_empty = false;
        if entry?.path().extension().is_some_and(|extension| extension == "jnl") {
            return Ok(true);
        }
    }
    Ok(is_empty)
}

fn unavailable(path: &Path, reason: &dyn std::fmt::Display) -> HistoryError {
    HistoryError::Unavailable { path: path.to_owned(), reason: reason.to_string() }
}

/// A name next to `path` that is not taken.
fn aside(path: &Path) -> PathBuf {
    let free = (1..).map(|n| path.with_extension(format!("unreadable-{n}"))).find(|path| !path.exists());
    free.unwrap_or_else(|| path.with_extension("unreadable"))
}

#[cfg(test)]
mod tests;
