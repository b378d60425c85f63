//! An open database: the log of the commits, and the buckets that receive their changes.
//!
//! The log may drop a change only when the bucket's row is on disk. A power cut keeps tables of one
//! keyspace and may lose the end of the journal that both share. Hence each keyspace has the number
//! of the last commit that left the log. The buckets' number is on disk before the log drops
//! changes, so it is never behind the log's in an intact directory.

use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fjall::compaction::filter::Factory;
use fjall::{
    AbstractTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch,
    PersistMode,
};

use super::database::Sizes;
use super::error::{OpenError, StoreError};
use super::expiry::Expiry;
use super::log::{self, PartKey};
use super::row::{COMMIT_KEY, Commit, SETTLED_KEY};
use super::{Committed, Rows};

const BUCKETS: &str = "buckets";
const LOG: &str = "log";
/// Threads of the database: one only writes tables, and two also merge them, so that the log does not
/// wait for the buckets.
const WORKERS: usize = 3;
/// Bytes of journals from which memtables are written early, so that the oldest journal can go.
const JOURNAL_BYTES: u64 = 256 << 20;
const BATCH_ROWS: usize = 1_024;
/// Maximum number of memtables and tables of a keyspace that wait to be written and merged. With
/// one or two more the database would block its callers forever, even if it has failed.
const SEALED_MAX: usize = 3;
const UNMERGED_MAX: usize = 28;
const BEHIND_DELAY: Duration = Duration::from_millis(2);

pub(super) struct Opened {
    pub(super) buckets: Keyspace,
    log: Keyspace,
    database: Database,
    /// Parts in the log, oldest first.
    parts: Mutex<VecDeque<PartKey>>,
    /// Number of the last commit when it was opened, and of the last one in the log's tables.
    pub(super) number: u64,
    pub(super) in_tables: u64,
    /// Number of the last commit, which the next one names.
    last: AtomicU64,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl Opened {
    /// Opens or creates the database in a folder. Its journals end with commit `journaled`, if they
    /// have one.
    pub(super) fn open(
        path: &Path,
        clock: Arc<AtomicU64>,
        sizes: Sizes,
        journaled: Option<u64>,
    ) -> Result<Self, StoreError> {
        let expiry: Arc<dyn Factory> = Arc::new(Expiry { clock });
        let filters = move |keyspace: &str| (keyspace == BUCKETS).then(|| expiry.clone());
        let database = Database::builder(path)
            .cache_size(sizes.blocks)
            .max_journaling_size(JOURNAL_BYTES)
            .manual_journal_persist(true)
            .journal_compression(CompressionType::None)
            .worker_threads(WORKERS)
            .with_compaction_filter_factories(Arc::new(filters))
            .open()
            .map_err(|error| match error {
                fjall::Error::Locked => StoreError::Open(OpenError::Locked {
                    path: path.to_owned(),
                }),
                error => error.into(),
            })?;
        let keyspace = |name, memtable| {
            database.keyspace(name, || {
                KeyspaceCreateOptions::default().max_memtable_size(memtable)
            })
        };
        let [buckets, log] = [
            keyspace(BUCKETS, sizes.memtable)?,
            keyspace(LOG, sizes.log)?,
        ];
        let in_tables = match log.tree.get_highest_persisted_seqno() {
            Some(persisted) => commit(
                log.tree
                    .get(COMMIT_KEY, persisted + 1)
                    .map_err(fjall::Error::from)?,
            )?,
            None => Commit::default(),
        };
        let stored = commit(log.get(COMMIT_KEY)?)?;
        let mut opened = Self {
            buckets,
            log,
            database,
            parts: Mutex::default(),
            number: stored.number,
            in_tables: in_tables.number,
            last: AtomicU64::default(),
        };
        opened.settle_log()?;
        opened.end_commit(journaled.unwrap_or(stored.number))?;
        // An earlier process may have left writes only in the memory of the system.
        opened.database.persist(PersistMode::SyncAll)?;
        Ok(opened)
    }

    /// Writes the changes in the log to the rows of their buckets, and empties the log.
    fn settle_log(&mut self) -> Result<(), StoreError> {
        let settled = number(self.log.get(SETTLED_KEY)?)?;
        if number(self.buckets.get(SETTLED_KEY)?)? < settled {
            return Err(StoreError::Failed(
                "balances that left the log are missing".to_owned(),
            ));
        }
        let mut parts = Vec::new();
        for row in self.log.iter() {
            let (key, value) = row.into_inner()?;
            let Some(key) = PartKey::decode(&key) else {
                continue;
            };
            parts.push(key);
            // Settled before, and its rows may have changed since.
            if key.number <= settled {
                continue;
            }
            let mut batch = self.batch(&self.buckets)?;
            for row in log::rows(&value) {
                let (key, value) = row?;
                self.add(&mut batch, key, value);
            }
            batch.commit()?;
        }
        self.number = parts
            .last()
            .map_or(0, |part| part.number)
            .max(settled)
            .max(self.number);
        self.remove(&parts)
    }

    /// Writes the number of the last commit if the journals, which end with `before`, lack it: that
    /// commit was cut short, or tables have its end and the journal lost it. The number is not used
    /// again, and the next commit follows it.
    fn end_commit(&self, before: u64) -> Result<(), StoreError> {
        if before < self.number {
            self.log.insert(
                COMMIT_KEY,
                Commit {
                    number: self.number,
                    before,
                }
                .encode(),
            )?;
        }
        self.last.store(self.number, Ordering::Relaxed);
        Ok(())
    }

    /// Returns a batch for a keyspace, once its tables are not far behind.
    fn batch(&self, keyspace: &Keyspace) -> Result<OwnedWriteBatch, StoreError> {
        while keyspace.tree.sealed_memtable_count() >= SEALED_MAX
            || keyspace.tree.l0_run_count() >= UNMERGED_MAX
        {
            // Fails if the database has failed.
            self.database.persist(PersistMode::Buffer)?;
            thread::sleep(BEHIND_DELAY);
        }
        Ok(self.database.batch())
    }

    fn add(&self, batch: &mut OwnedWriteBatch, key: &[u8], value: &[u8]) {
        if value.is_empty() {
            batch.remove(&self.buckets, key);
        } else {
            batch.insert(&self.buckets, key, value);
        }
    }

    /// Removes settled parts from the log.
    fn remove(&self, parts: &[PartKey]) -> Result<(), StoreError> {
        let Some(last) = parts.last() else {
            return Ok(());
        };
        self.buckets
            .insert(SETTLED_KEY, last.number.to_le_bytes())?;
        self.database.persist(PersistMode::SyncData)?;
        for some in parts.chunks(BATCH_ROWS) {
            let mut batch = self.batch(&self.log)?;
            batch.insert(&self.log, SETTLED_KEY, last.number.to_le_bytes());
            // Each was written once: numbers are not used again.
            some.iter()
                .for_each(|part| batch.remove_weak(&self.log, part.encode()));
            batch.commit()?;
        }
        Ok(())
    }

    pub(super) fn commit(
        &self,
        number: u64,
        rows: &Rows,
        pause: &mut dyn FnMut(),
    ) -> Result<Committed, StoreError> {
        let mut rows = rows.iter();
        let mut bytes = 0;
        for part in 0.. {
            let key = PartKey { number, part };
            let changes = log::part(&mut rows);
            let mut batch = self.batch(&self.log)?;
            if !changes.is_empty() {
                bytes += changes.len() as u64;
                batch.insert(&self.log, key.encode(), changes);
                self.parts
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push_back(key);
            }
            if rows.len() > 0 {
                batch.commit()?;
                pause();
                continue;
            }
            let commit = Commit {
                number,
                before: self.last.load(Ordering::Relaxed),
            }
            .encode();
            batch.insert(&self.log, COMMIT_KEY, commit);
            batch.commit()?;
            break;
        }
        let began = Instant::now();
        self.database.persist(PersistMode::SyncData)?;
        self.last.store(number, Ordering::Relaxed);
        Ok(Committed {
            bytes,
            sync: began.elapsed(),
        })
    }

    pub(super) fn settle(&self, rows: &Rows) -> Result<(), StoreError> {
        let mut batch = self.batch(&self.buckets)?;
        rows.iter()
            .for_each(|(key, value)| self.add(&mut batch, key, value));
        Ok(batch.commit()?)
    }

    pub(super) fn forget(&self, number: u64) -> Result<(), StoreError> {
        let settled = {
            let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
            let count = parts.partition_point(|part| part.number <= number);
            parts.drain(..count).collect::<Vec<_>>()
        };
        self.remove(&settled)
    }

    pub(super) fn disk_bytes(&self) -> u64 {
        self.database.disk_space().unwrap_or(0)
    }
}

#[cfg(test)]
impl Opened {
    pub(super) fn flush(&self, is_log: bool) -> Result<(), StoreError> {
        let keyspace = if is_log { &self.log } else { &self.buckets };
        Ok(keyspace.rotate_memtable_and_wait()?)
    }

    /// Writes a part of the log again that was removed.
    pub(super) fn bring_back(
        &self,
        number: u64,
        rows: &[(&[u8], &[u8])],
    ) -> Result<(), StoreError> {
        let key = PartKey { number, part: 0 }.encode();
        Ok(self.log.insert(key, log::part(&mut rows.iter().copied()))?)
    }

    pub(super) fn parts(&self) -> usize {
        self.log
            .iter()
            .filter_map(|row| row.key().ok())
            .filter(|key| PartKey::decode(key).is_some())
            .count()
    }
}

/// Reads the numbers of a commit; 0 where there is none.
fn commit(value: Option<fjall::Slice>) -> Result<Commit, StoreError> {
    let commit = value.map_or(Some(Commit::default()), |value| Commit::decode(&value));
    commit
        .ok_or_else(|| StoreError::Failed("the number of the last commit is unreadable".to_owned()))
}

/// Reads the number of the last commit that left the log completely; 0 where there is none.
fn number(value: Option<fjall::Slice>) -> Result<u64, StoreError> {
    let number = value.map_or(Ok([0; 8]), |value| value.as_ref().try_into());
    number
        .map(u64::from_le_bytes)
        .map_err(|_| StoreError::Failed("the number of settled changes is unreadable".to_owned()))
}
