//! The errors of the history on disk: temporary ones, after which it is opened again, and damage, after which
//! it is put aside.

use std::io;
use std::path::PathBuf;

use fjall::LsmError;

/// Why the history on disk cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}{}", path.display(), fault.remedy())]
pub(crate) struct HistoryError {
    /// The folder of the history.
    pub(crate) path: PathBuf,
    /// The reason.
    pub(crate) fault: Fault,
}

/// Why an operation on the database failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// Another process uses the files, or a thread of a database that was just closed.
    #[error("another process has it open")]
    Locked,
    /// The files cannot be used now, and may be later: the disk is full or not writable.
    #[error("{0}")]
    Unavailable(String),
    /// The files are damaged, or no history.
    #[error("{0}")]
    Unreadable(String),
}

impl Fault {
    const fn remedy(&self) -> &'static str {
        match self {
            Self::Locked | Self::Unavailable(_) => "; free some space or make it writable",
            Self::Unreadable(_) => "",
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
