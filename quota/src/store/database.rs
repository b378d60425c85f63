//! The store in a database on disk.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_host::atomic_file::sync_directory;
use plimsoll_host::panics::stopped_at_panic;

use super::directory::Directory;
use super::error::{OpenError, StoreError};
use super::opened::Opened;
use super::row::{Kind, Row, RowKey};
use super::{Committed, Rows, Store, journals, versions};

const NICE: i32 = 5;
const CLOSE_WAIT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Bytes of table blocks in memory.
    pub(crate) blocks: u64,
    /// Maximum bytes of a memtable of the buckets, and of the log: rows that are in no table yet.
    pub(crate) memtable: u64,
    pub(crate) log: u64,
}

#[derive(Debug)]
pub(crate) struct DatabaseStore {
    directory: Directory,
    /// Quota time of the last operations in milliseconds; 0 before the first.
    clock: Arc<AtomicU64>,
    sizes: Sizes,
    /// `None` from a failure until it is open again.
    opened: RwLock<Option<Arc<Opened>>>,
    /// Failed database, until its readers have left it.
    failed: Mutex<Option<Arc<Opened>>>,
    /// The panic of the database while it opened. Its stopped thread keeps the lock of the files.
    panicked: OnceLock<String>,
}

impl DatabaseStore {
    /// Opens or creates the store in a directory, and returns it with the number of its last
    /// commit. Rows of buckets that are full by `clock` are removed by [`Store::sweep`], and when the
    /// database merges tables.
    pub(crate) fn open(
        path: &Path,
        clock: Arc<AtomicU64>,
        sizes: Sizes,
    ) -> Result<(Self, u64), OpenError> {
        let directory = Directory::open(path)?;
        let store = Self {
            directory,
            clock,
            sizes,
            opened: RwLock::default(),
            failed: Mutex::default(),
            panicked: OnceLock::new(),
        };
        let opened = store.load()?;
        let number = opened.number;
        store.set(Some(Arc::new(opened)));
        Ok((store, number))
    }

    /// Replaces the open database, and returns the one before.
    fn set(&self, opened: Option<Arc<Opened>>) -> Option<Arc<Opened>> {
        std::mem::replace(
            &mut *self.opened.write().unwrap_or_else(PoisonError::into_inner),
            opened,
        )
    }

    fn opened(&self) -> Result<Arc<Opened>, StoreError> {
        let opened = self.opened.read().unwrap_or_else(PoisonError::into_inner);
        opened.clone().ok_or(StoreError::Closed)
    }

    /// Opens the database, and refuses it if commits are missing.
    fn load(&self) -> Result<Opened, OpenError> {
        let path = self.directory.store();
        let synced = self.directory.synced();
        let lost = |stored| match synced {
            Some(synced) if synced > stored => Err(OpenError::Lost {
                path: path.clone(),
                stored,
                synced,
            }),
            _ => Ok(()),
        };
        if self.directory.is_new() {
            lost(0)?;
            let opened = self
                .directory
                .create_store(|path| self.load_from(path, None))?;
            self.directory.set_synced(0);
            return Ok(opened);
        }
        if synced.is_none() {
            tracing::warn!(path = %path.display(), "the last commit on disk is not known: damage of the last journal would not be noticed");
        }
        let chain = journals::check(&path)?;
        // Checked before the database cuts what it cannot read.
        chain.last.map_or(Ok(()), lost)?;
        let opened = self.load_from(&path, chain.last)?;
        lost(opened.number)?;
        if chain.last.is_some() && chain.before > opened.in_tables {
            return Err(journals::missing(&path, opened.in_tables, chain.before));
        }
        self.directory.set_synced(opened.number);
        Ok(opened)
    }

    fn load_from(&self, path: &Path, journaled: Option<u64>) -> Result<Opened, OpenError> {
        versions::check(path)?;
        let damaged = |reason| OpenError::Damaged {
            path: path.to_owned(),
            reason,
        };
        if let Some(panic) = self.panicked.get() {
            let why = "reading it failed, and a restart is needed once that is mended";
            return Err(damaged(format!("{why}: {panic}")));
        }
        let (folder, clock, sizes) = (path.to_owned(), self.clock.clone(), self.sizes);
        let opened = stopped_at_panic("quota-open", move || {
            // Inherited by the threads of the database, which compete with operations. A failure
            // changes nothing else.
            let _ = rustix::process::nice(NICE);
            Opened::open(&folder, clock, sizes, journaled)
        });
        match opened.map_err(OpenError::io(path))? {
            Ok(Ok(opened)) => Ok(opened),
            Ok(Err(StoreError::Open(error))) => Err(error),
            Ok(Err(StoreError::System(error))) => Err(OpenError::io(path)(error)),
            Ok(Err(error)) => Err(damaged(error.to_string())),
            Err(panic) => {
                let panic = self.panicked.get_or_init(|| panic);
                Err(damaged(format!("reading it failed: {panic}")))
            }
        }
    }
}

#[cfg(test)]
impl DatabaseStore {
    pub(super) fn flush(&self, is_log: bool) -> Result<(), StoreError> {
        self.opened()?.flush(is_log)
    }

    pub(super) fn bring_back(
        &self,
        number: u64,
        rows: &[(&[u8], &[u8])],
    ) -> Result<(), StoreError> {
        self.opened()?.bring_back(number, rows)
    }

    pub(super) fn parts(&self) -> usize {
        self.opened().map_or(0, |opened| opened.parts())
    }

    pub(super) fn tables_bytes(&self) -> u64 {
        self.opened()
            .map_or(0, |opened| opened.buckets.disk_space())
    }
}

impl Store for DatabaseStore {
    fn get(&self, key: &[u8]) -> Result<Option<Row>, StoreError> {
        let value = self.opened()?.buckets.get(key)?;
        value.map(|value| decode(&value)).transpose()
    }

    fn commit(
        &self,
        number: u64,
        rows: &Rows,
        pause: &mut dyn FnMut(),
    ) -> Result<Committed, StoreError> {
        let committed = self.opened()?.commit(number, rows, pause)?;
        self.directory.set_synced(number);
        Ok(committed)
    }

    fn settle(&self, rows: &Rows) -> Result<(), StoreError> {
        self.opened()?.settle(rows)
    }

    fn forget(&self, number: u64) -> Result<(), StoreError> {
        self.opened()?.forget(number)
    }

    fn scan(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(RowKey, Row)>, StoreError> {
        let opened = self.opened()?;
        let from = after.filter(|after| *after >= prefix).unwrap_or(prefix);
        let mut rows = Vec::new();
        for row in opened.buckets.range(from.to_vec()..) {
            if rows.len() == limit {
                break;
            }
            let (key, value) = row.into_inner()?;
            if !key.starts_with(prefix) {
                break;
            }
            if after.is_none_or(|after| *key > *after) && Kind::parse(&key).is_some() {
                rows.push((RowKey::from_slice(&key), decode(&value)?));
            }
        }
        Ok(rows)
    }

    fn reopen(&self) -> Result<(), StoreError> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = self.set(None) {
            *failed = Some(opened);
        }
        let until = Instant::now() + CLOSE_WAIT;
        while let Some(opened) = failed.take() {
            if let Err(opened) = Arc::try_unwrap(opened) {
                *failed = Some(opened);
                if Instant::now() >= until {
                    return Err(StoreError::Failed(
                        "readers do not leave the failed database".to_owned(),
                    ));
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
        let path = self.directory.store();
        rewrite_journals(&path).map_err(OpenError::io(&path))?;
        let opened = self.load()?;
        self.set(Some(Arc::new(opened)));
        Ok(())
    }

    fn sweep(&self) -> Result<(), StoreError> {
        Ok(self.opened()?.buckets.major_compact()?)
    }

    fn disk_bytes(&self) -> u64 {
        self.opened().map_or(0, |opened| opened.disk_bytes())
    }
}

fn decode(value: &[u8]) -> Result<Row, StoreError> {
    Row::decode(value)
        .ok_or_else(|| StoreError::Failed("the row of a bucket is unreadable".to_owned()))
}

/// Writes the journals again. After a failed synchronisation, a later one proves nothing about
/// earlier writes.
fn rewrite_journals(store: &Path) -> io::Result<()> {
    for path in journals::files(store)? {
        let new = path.with_extension("rewritten");
        fs::copy(&path, &new)?;
        File::open(&new)?.sync_all()?;
        fs::rename(&new, &path)?;
    }
    sync_directory(store)
}
