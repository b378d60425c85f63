//! The place of the durable state: a directory, or etcd for several controllers.
//!
//! In a directory it is one checksummed file that is replaced as a whole, and a marker file that distinguishes a first
//! start from a loss. A directory that cannot be written keeps no controller from starting: it is tried again with
//! every save.

pub(crate) mod document;
pub(crate) mod etcd;
mod file;
#[cfg(test)]
pub(crate) mod tests;

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_host::atomic_file::{replace, sync_directory};
use plimsoll_host::{private_directory, regular_file};
use tokio::runtime::Handle;

use self::etcd::EtcdStore;
use crate::state::DurableState;

pub(crate) use file::decode;

const FILE: &str = "controller.state";
/// The lock file; a controller holds its lock as long as it runs.
const LOCK: &str = "controller.lock";
/// The marker file. It exists once a state was saved: an empty directory without it belongs to a first start.
const MARKER: &str = "initialised";

/// The place where a controller saves its state.
#[derive(Debug)]
pub(crate) enum StateStore {
    Directory(Store),
    Etcd(Arc<EtcdStore>),
}

#[derive(Debug)]
pub(crate) struct Store {
    directory: PathBuf,
    /// Locked during a save, so that saves do not share their temporary file.
    claim: Mutex<Claim>,
}

/// The right of this process to use a directory.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    /// The lock of the directory, unlocked when it is closed, also by `kill -9`; `None` while the directory
    /// cannot be used.
    lock: Option<File>,
    /// A state file that cannot be read is still to be put aside.
    is_damaged: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Opened {
    pub(crate) durable: DurableState,
    /// Why the earlier state could not be read; `None` if it was read, or if this is a first start.
    pub(crate) loss: Option<String>,
}

/// Why a state cannot be saved.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory cannot be created or locked.
    #[error("the state directory {} cannot be used: {source}; --state-dir chooses another one", directory.display())]
    Directory {
        /// Path of the directory.
        directory: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Another controller holds the lock.
    #[error("state directory {} is in use by another controller", .0.display())]
    InUse(PathBuf),
    /// The state file cannot be written.
    #[error("{} cannot be written: {source}", file.display())]
    Write {
        /// Path of the state file.
        file: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The store did not take or give the state.
    #[error("the store: {0}")]
    Etcd(#[from] plimsoll_etcd::Error),
    /// Another controller was elected.
    #[error("this controller does not lead any more, so that the store takes no state from it")]
    Deposed,
    /// An earlier write of this controller has arrived late.
    #[error("an earlier write of the state has arrived late; the state is read, and written again")]
    Overtaken,
    /// The state cannot be written as a document.
    #[error("the state cannot be written: {0}")]
    Encode(io::Error),
}

// === impl StateStore ===

impl StateStore {
    /// Writes the state, which outlives this process when this returns. Blocks; must be called on a thread of a runtime
    /// that may block.
    ///
    /// # Errors
    /// When it could not be written. The state saved before is kept, and another attempt may succeed.
    pub(crate) fn save(&self, durable: &DurableState) -> Result<(), StoreError> {
        match self {
            Self::Directory(store) => store.save(durable),
            Self::Etcd(store) => Handle::current().block_on(store.save(durable)),
        }
    }
}

// === impl Store ===

impl Store {
    /// Opens and locks `directory`, which is created if it does not exist. A state file that cannot be read
    /// is put aside, and every bucket begins in shadow.
    ///
    /// # Errors
    /// When another controller uses the directory.
    pub(crate) fn open(directory: &Path) -> Result<(Self, Opened), StoreError> {
        let mut claim = Claim::default();
        // Any other error returns with the first save, and is reported there.
        if let Err(error @ StoreError::InUse(_)) = claim.lock(directory) {
            return Err(error);
        }
        let path = directory.join(FILE);
        let lost = |loss| Opened {
            durable: DurableState::lost(),
            loss: Some(loss),
        };
        let opened = match file::read(&path) {
            Ok(Some(durable)) => {
                file::restrict(&path);
                Opened {
                    durable,
                    loss: None,
                }
            }
            Ok(None) if matches!(directory.join(MARKER).try_exists(), Ok(false)) => Opened {
                durable: DurableState::first_start(),
                loss: None,
            },
            Ok(None) => lost(format!("the state file {} is missing", path.display())),
            Err(error) => {
                let aside = match put_aside(&path) {
                    Ok(aside) => format!("it was put aside as {}", aside.display()),
                    Err(error) => {
                        claim.is_damaged = true;
                        format!(
                            "it stays until it can be put aside as {}: {error}",
                            aside(&path).display()
                        )
                    }
                };
                lost(format!(
                    "the state file {} cannot be read: {error}; {aside}",
                    path.display()
                ))
            }
        };
        Ok((
            Self {
                directory: directory.to_owned(),
                claim: Mutex::new(claim),
            },
            opened,
        ))
    }

    /// Writes the state; it is on disk when this returns.
    ///
    /// # Errors
    /// When it could not be written. The state saved before is kept, and another attempt may succeed.
    pub(crate) fn save(&self, durable: &DurableState) -> Result<(), StoreError> {
        let mut claim = self.claim.lock().unwrap_or_else(PoisonError::into_inner);
        claim.lock(&self.directory)?;
        let file = self.directory.join(FILE);
        let write = |claim: &mut Claim| {
            if claim.is_damaged {
                put_aside(&file)?;
                claim.is_damaged = false;
            }
            replace(&file, &file::encode(durable)?)?;
            create_marker(&self.directory)
        };
        write(&mut claim).map_err(|source| StoreError::Write {
            file: file.clone(),
            source,
        })
    }
}

// === impl Claim ===

impl Claim {
    /// Creates and locks a directory, unless this process holds its lock.
    pub(crate) fn lock(&mut self, directory: &Path) -> Result<(), StoreError> {
        let path = directory.join(LOCK);
        if self.lock.as_ref().is_some_and(|lock| is_at(lock, &path)) {
            return Ok(());
        }
        // The lock file was deleted, or the directory replaced: another controller may use the
        // present directory.
        self.lock = None;
        let in_directory = |source| StoreError::Directory {
            directory: directory.to_owned(),
            source,
        };
        private_directory::create(directory).map_err(in_directory)?;
        // On a read-only disk the lock of an earlier run protects its state.
        let lock = regular_file::open_or_create(&path)
            .or_else(|error| regular_file::open(&path).map_err(|other| clearer(error, other)))
            .map_err(in_directory)?;
        match lock.try_lock() {
            Ok(()) => self.lock = Some(lock),
            Err(TryLockError::WouldBlock) => return Err(StoreError::InUse(directory.to_owned())),
            Err(TryLockError::Error(error)) => return Err(in_directory(error)),
        }
        Ok(())
    }
}

impl Drop for Claim {
    /// Unlocks the directory, also for a child process that was forked and has not closed its copies of our
    /// descriptors yet.
    fn drop(&mut self) {
        if let Some(lock) = &self.lock {
            // Closing it does the rest.
            let _ = lock.unlock();
        }
    }
}

/// Returns the error that says more: that of a path that is not a regular file.
fn clearer(first: io::Error, second: io::Error) -> io::Error {
    if second.kind() == io::ErrorKind::InvalidInput {
        second
    } else {
        first
    }
}

/// Returns true if `path` still is this file, or if that is unknown.
fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        match (file.metadata(), path.metadata()) {
            (Ok(held), Ok(there)) => (held.dev(), held.ino()) == (there.dev(), there.ino()),
            (_, Err(error)) => error.kind() != io::ErrorKind::NotFound,
            (Err(_), Ok(_)) => true,
        }
    }
    #[cfg(not(unix))]
    {
        let _ = (file, path);
        true
    }
}

fn create_marker(directory: &Path) -> io::Result<()> {
    let marker = directory.join(MARKER);
    if marker.try_exists()? {
        return Ok(());
    }
    File::create(marker)?.sync_all()?;
    sync_directory(directory)
}

/// Renames a file, if there is one, to a name that no file has. Returns the new path.
pub(crate) fn put_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = aside(path);
    match fs::rename(path, &aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => file::restrict(&aside),
    }
    Ok(aside)
}

fn aside(path: &Path) -> PathBuf {
    let name = |n: u32| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        path.with_file_name(format!("{file}.unreadable-{n}"))
    };
    let is_free = |path: &PathBuf| path.symlink_metadata().is_err();
    (1..u32::MAX)
        .map(name)
        .find(is_free)
        .unwrap_or_else(|| name(u32::MAX))
}
