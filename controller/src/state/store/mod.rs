//! The durable state on disk: one checksummed file that is replaced as a whole, and a marker file that tells
//! a first start from a loss.

mod file;
#[cfg(test)]
mod tests;

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::state::DurableState;

/// The state file in the state directory.
const FILE: &str = "controller.state";
/// The lock file; a controller holds its lock as long as it runs.
const LOCK: &str = "controller.lock";
/// The marker file. It exists once a state was saved: an empty directory without it belongs to a first start.
const MARKER: &str = "initialised";

/// A state directory, locked for this process.
#[derive(Debug)]
pub(crate) struct Store {
    directory: PathBuf,
    /// Held during a save, so that saves do not share their temporary file.
    saving: Mutex<()>,
    /// Unlocked when it is closed, also by `kill -9`.
    _lock: File,
}

/// The result of opening a state directory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Opened {
    /// The state to start with.
    pub(crate) durable: DurableState,
    /// Why the earlier state could not be read; `None` if it was read, or if this is a first start.
    pub(crate) loss: Option<String>,
}

/// Why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory cannot be created, read or locked.
    #[error("state directory {}: {source}; choose another one with --state-dir", directory.display())]
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
    #[error("the durable state cannot be written: {0}")]
    Write(io::Error),
}

// === impl Store ===

impl Store {
    /// Opens and locks `directory`, which is created if it does not exist. A state file that cannot be read
    /// is put aside, and every bucket begins in shadow.
    ///
    /// # Errors
    /// When the directory cannot be used, or another controller uses it.
    pub(crate) fn open(directory: &Path) -> Result<(Self, Opened), StoreError> {
        let in_directory = |source| StoreError::Directory { directory: directory.to_owned(), source };
        file::create_directory(directory).map_err(in_directory)?;
        let lock = File::options().create(true).truncate(false).write(true).open(directory.join(LOCK));
        let lock = lock.map_err(in_directory)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::InUse(directory.to_owned())),
            Err(TryLockError::Error(error)) => return Err(in_directory(error)),
        }
        let initialised = directory.join(MARKER).try_exists().map_err(in_directory)?;
        let path = directory.join(FILE);
        let opened = match file::read(&path) {
            Ok(Some(durable)) => {
                file::restrict(&path);
                Opened { durable, loss: None }
            }
            Ok(None) if !initialised => Opened { durable: DurableState::first_start(), loss: None },
            Ok(None) => {
                Opened { durable: DurableState::lost(), loss: Some("the saved state is missing".to_owned()) }
            }
            Err(error) => {
                let aside = aside(&path);
                fs::rename(&path, &aside).map_err(in_directory)?;
                file::restrict(&aside);
                let loss = format!("{error}; the file was put aside as {}", aside.display());
                Opened { durable: DurableState::lost(), loss: Some(loss) }
            }
        };
        Ok((Self { directory: directory.to_owned(), saving: Mutex::new(()), _lock: lock }, opened))
    }

    /// Writes the state; it is on disk when this returns.
    ///
    /// # Errors
    /// When it could not be written. The state saved before is kept, and another attempt may succeed.
    pub(crate) fn save(&self, durable: &DurableState) -> Result<(), StoreError> {
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        file::replace(&self.directory, FILE, durable)
            .and_then(|()| file::create_marker(&self.directory, MARKER))
            .map_err(StoreError::Write)
    }
}

/// Returns an unused name beside `path`.
fn aside(path: &Path) -> PathBuf {
    let name = |n: u32| path.with_extension(format!("state.unreadable-{n}"));
    (1..u32::MAX).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(u32::MAX))
}
