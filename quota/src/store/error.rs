//! The errors of the store.

use std::io::{self, ErrorKind};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

/// Reason why the data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another server uses the directory.
    #[error("{}: another quota server uses this directory; stop it, or choose another --data", path.display())]
    Locked {
        /// Path of the directory.
        path: PathBuf,
    },
    /// The directory has files of other programs.
    #[error("{}: it is no data directory of a quota server, and not empty; choose another --data", path.display())]
    Foreign {
        /// Path of the directory.
        path: PathBuf,
    },
    /// The directory is of a later version.
    #[error("{}: its format is {found}, and this version reads {known}; start the version that wrote it, or a later one", path.display())]
    Newer {
        /// File with the format.
        path: PathBuf,
        /// Format in the file.
        found: u32,
        /// Format of this version.
        known: u32,
    },
    /// The system refused an access to a file, which may be intact.
    #[error("{}: {error}; {}", path.display(), advice(error))]
    Io {
        /// Path of the file or directory.
        path: PathBuf,
        /// Reason of the system.
        error: io::Error,
    },
    /// A file is damaged.
    #[error(
        "{}: {reason}; restore the directory from a backup, or move it away to begin with full buckets",
        path.display()
    )]
    Damaged {
        /// Path of the file or directory.
        path: PathBuf,
        /// Damage that was found.
        reason: String,
    },
    /// Commits that were on disk are missing.
    #[error(
        "{}: commits {} to {synced}, which were on disk, are missing: a journal in it is truncated, damaged or gone; restore the \
         directory from a backup, or remove the file `synced` beside it to grant the tokens of these commits again",
        path.display(), stored + 1
    )]
    Lost {
        /// Directory of the database.
        path: PathBuf,
        /// Last commit that was found.
        stored: u64,
        /// Last commit that was on disk.
        synced: u64,
    },
}

impl OpenError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io {
            path: path.to_owned(),
            error,
        }
    }
}

/// Returns the remedy for an error of a file or directory.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            "let the user of this process read and write the --data directory"
        }
        ErrorKind::ReadOnlyFilesystem => {
            "choose a --data directory on a file system that is not read-only"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "make room on the file system of the --data directory"
        }
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
            "choose a --data directory, which this is not"
        }
        ErrorKind::NotFound => "choose a --data directory that can be created",
        _ => "see that the --data directory can be read and written, or choose another",
    }
}

/// Reason why the store did not read or write.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The store has failed, and is not open again yet.
    #[error("the store is closed after an error")]
    Closed,
    /// The system refused an access; the files may be intact.
    #[error(transparent)]
    System(io::Error),
    /// A file is damaged, or the database does not work for another reason.
    #[error("{0}")]
    Failed(String),
    /// The database could not be opened, at the start or again after a failure.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl From<fjall::Error> for StoreError {
    fn from(error: fjall::Error) -> Self {
        match error {
            fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error))
                if !is_damage(&error) =>
            {
                Self::System(error)
            }
            // A thread of the database failed, and has logged why.
            fjall::Error::Poisoned => Self::System(io::Error::other("an earlier write failed")),
            error => Self::Failed(error.to_string()),
        }
    }
}

/// Returns true for errors that damaged or missing files cause. All others, such as a lack of
/// descriptors, are possible with intact files.
fn is_damage(error: &io::Error) -> bool {
    use ErrorKind::{InvalidData, InvalidInput, NotFound, UnexpectedEof};
    matches!(
        error.kind(),
        InvalidData | InvalidInput | NotFound | UnexpectedEof
    )
}

/// Runs `f` on an open database, and returns its panic as an error, so that the thread survives.
pub(crate) fn caught<T>(f: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    panic::catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| {
        Err(StoreError::Failed(
            "the database panicked; a file is damaged".to_owned(),
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_error_says_what_to_do() {
        for (kind, advice) in [
            (ErrorKind::PermissionDenied, "let the user of this process"),
            (ErrorKind::ReadOnlyFilesystem, "not read-only"),
            (ErrorKind::StorageFull, "make room"),
            (ErrorKind::AlreadyExists, "which this is not"),
            (ErrorKind::NotFound, "can be created"),
            (ErrorKind::Other, "or choose another"),
        ] {
            let error = OpenError::io(Path::new("/var/lib/quota"))(kind.into()).to_string();
            assert!(
                error.starts_with("/var/lib/quota: ") && error.contains(advice),
                "{error}"
            );
            assert!(error.contains("--data"), "{error}");
        }
    }

    #[test]
    fn error_of_the_system_is_no_damage() {
        let of = |error: io::Error| StoreError::from(fjall::Error::Io(error));
        // EIO, EMFILE, ENOSPC
        for number in [5, 24, 28] {
            let error = of(io::Error::from_raw_os_error(number));
            let system = io::Error::from_raw_os_error(number).to_string();
            assert!(matches!(error, StoreError::System(_)), "{error:?}");
            assert_eq!(error.to_string(), system);
        }
        for kind in [ErrorKind::UnexpectedEof, ErrorKind::NotFound] {
            assert!(matches!(of(kind.into()), StoreError::Failed(_)), "{kind}");
        }
    }
}
