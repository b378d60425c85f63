//! The errors of the history on disk: temporary ones, after which it is opened again, and damage, after which
//! it is put aside.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use fjall::LsmError;

/// Why the history on disk cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// It cannot be used now, and may be later: the disk is full, locked or not writable.
    #[error("{}: {reason}; free some space or make it writable", path.display())]
    Unavailable {
        /// The folder of the history.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The files are damaged, or no history.
    #[error("{}: {reason}", path.display())]
    Unreadable {
        /// The folder of the history.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

impl HistoryError {
    pub(super) fn unavailable(path: &Path, reason: &dyn Display) -> Self {
        Self::Unavailable { path: path.to_owned(), reason: reason.to_string() }
    }
}

/// Why an operation on the database failed, before the folder is known.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("another process has it open")]
    Locked,
    #[error("{0}")]
    Unavailable(String),
    #[error("{0}")]
    Unreadable(String),
}

impl Fault {
    /// Adds the folder.
    pub(super) fn at(self, path: &Path) -> HistoryError {
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
            fjall::Error::Io(io) | fjall::Error::Storage(LsmError::Io(io)) if is_temporary(io) => {
                Self::Unavailable(reason)
            }
            fjall::Error::Locked => Self::Locked,
            _ => Self::Unreadable(reason),
        }
    }
}

/// Returns true for errors of the disk, as opposed to damaged files.
fn is_temporary(error: &io::Error) -> bool {
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
