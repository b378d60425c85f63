//! The errors of the store.

use std::io::{self, ErrorKind};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

/// The reason why an engine cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another server uses the directory.
    #[error("{}: another quota server uses this directory; stop it, or choose another --data", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The directory has files, but is not ours.
    #[error("{}: it is no data directory of a quota server, and not empty; choose another --data", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// The directory is of a later version.
    #[error("{}: its format is {found}, and this version reads {known}; start the version that wrote it, or a later one", path.display())]
    Newer {
        /// The file with the format.
        path: PathBuf,
        /// The format.
        found: u32,
        /// The format of this version.
        known: u32,
    },
    /// A file cannot be used now.
    #[error("{}: {error}; {}", path.display(), advice(error))]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// A file is damaged.
    #[error(
        "{}: {reason}; restore the directory from a backup, or move it away to begin with full buckets",
        path.display()
    )]
    Damaged {
        /// The file or directory.
        path: PathBuf,
        /// The damage.
        reason: String,
    },
    /// Commits that were on disk are missing.
    #[error(
        "{}: commits {} to {synced}, which were on disk, are missing: a journal in it is truncated, damaged or gone; restore the \
         directory from a backup, or remove the file `synced` beside it to grant the tokens of these commits again",
        path.display(), stored + 1
    )]
    Lost {
        /// The directory of the database.
        path: PathBuf,
        /// The last commit that is there.
        stored: u64,
        /// The last commit that was on disk.
        synced: u64,
    },
}

impl OpenError {
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io { path: path.to_owned(), error }
    }
}

/// Returns what to do about an error of a file or directory.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => "let the user of this process read and write the --data directory",
        ErrorKind::ReadOnlyFilesystem => "choose a --data directory on a file system that is not read-only",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "make room on the file system of the --data directory"
        }
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory => "choose a --data directory, which this is not",
        ErrorKind::NotFound => "choose a --data directory that can be created",
        _ => "see that the --data directory can be read and written, or choose another",
    }
}

/// The reason why an operation on the store failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// It is closed after an error.
    #[error("the store is closed after an error")]
    Closed,
    /// The disk failed.
    #[error("{0}")]
    Disk(#[source] io::Error),
    /// The database failed.
    #[error("{0}")]
    Failed(String),
    /// It cannot be opened again.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl From<fjall::Error> for StoreError {
    fn from(error: fjall::Error) -> Self {
        match error {
            fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error))
                if is_temporary(&error) =>
            {
                Self::Disk(error)
            }
            // A thread of the database failed, and has logged why.
            fjall::Error::Poisoned => Self::Disk(io::Error::other("an earlier write failed")),
            error => Self::Failed(error.to_string()),
        }
    }
}

/// Returns true for errors of the disk, as opposed to damaged files.
fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::FileTooLarge
            | ErrorKind::NotADirectory
            | ErrorKind::OutOfMemory
            | ErrorKind::PermissionDenied
            | ErrorKind::QuotaExceeded
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::StorageFull
    )
}

/// Runs `f` on a database that is open, and returns its panic as an error: the thread goes on.
pub(crate) fn caught<T>(f: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    panic::catch_unwind(AssertUnwindSafe(f))
        .unwrap_or_else(|_| Err(StoreError::Failed("the database panicked; a file is damaged".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_a_file_says_what_to_do_about_it() {
        for (kind, advice) in [
            (ErrorKind::PermissionDenied, "let the user of this process"),
            (ErrorKind::ReadOnlyFilesystem, "not read-only"),
            (ErrorKind::StorageFull, "make room"),
            (ErrorKind::AlreadyExists, "which this is not"),
            (ErrorKind::NotFound, "can be created"),
            (ErrorKind::Other, "or choose another"),
        ] {
            let error = OpenError::io(Path::new("/var/lib/quota"))(kind.into()).to_string();
            assert!(error.starts_with("/var/lib/quota: ") && error.contains(advice), "{error}");
            assert!(error.contains("--data"), "{error}");
        }
    }
}
