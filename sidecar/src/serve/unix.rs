//! Unix sockets by their files: a file that no process listens on is taken over, a used file is an
//! error, and the file is removed at the end.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream as Probe;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// Owner and group may connect.
const MODE: u32 = 0o660;

/// Unix socket with a listener. Dropping it removes its file.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    pub(super) listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file, to recognise another process's file.
    file: (u64, u64),
}

/// Reason why a Unix socket cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum UnixSocketError {
    /// Another process listens on it.
    #[error(
        "another process listens on the socket {}: end it, or give this sidecar a directory of its own with \
         --sockets DIR", .0.display()
    )]
    InUse(PathBuf),
    /// The path is another kind of file, which is not removed.
    #[error("{} is not a socket: remove it, or give another directory with --sockets DIR", .0.display())]
    NotASocket(PathBuf),
    /// The operating system refuses it.
    #[error("cannot listen on the socket {}: {source}; give another directory with --sockets DIR", .path.display())]
    System {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

impl UnixSocket {
    /// Listens on a path. Blocks for a moment, and needs a runtime.
    ///
    /// # Errors
    /// When another process listens there, or the operating system refuses it.
    pub(crate) fn listen(path: PathBuf) -> Result<Self, UnixSocketError> {
        take_over(&path)?;
        let listen = |path: &Path| {
            let listener = UnixListener::bind(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(MODE))?;
            Ok((listener, identity(path)?))
        };
        match listen(&path) {
            Ok((listener, file)) => Ok(Self {
                listener,
                path,
                file,
            }),
            Err(source) => Err(UnixSocketError::System { path, source }),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        // If another process took the path over, its file stays.
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Removes the socket file of a process that ended without removing it.
fn take_over(path: &Path) -> Result<(), UnixSocketError> {
    let system = |source| UnixSocketError::System {
        path: path.to_owned(),
        source,
    };
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata.map_err(system)?,
    };
    if !metadata.file_type().is_socket() {
        return Err(UnixSocketError::NotASocket(path.to_owned()));
    }
    match Probe::connect(path) {
        Ok(_) => Err(UnixSocketError::InUse(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!(socket = %path.display(), "socket file without a process taken over");
            fs::remove_file(path).map_err(system)
        }
        Err(source) => Err(system(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_an_abandoned_socket_is_taken_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rls.sock");
        // A listener of the standard library leaves its file behind, as a killed process does.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let socket = UnixSocket::listen(path.clone()).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        let error = UnixSocket::listen(path.clone()).unwrap_err();
        assert!(
            matches!(&error, UnixSocketError::InUse(used) if *used == path),
            "{error}"
        );
        drop(socket);
        assert!(!path.exists(), "removed at the end");
    }

    #[tokio::test]
    async fn other_files_are_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rls.sock");
        fs::write(&path, "text").unwrap();
        let error = UnixSocket::listen(path.clone()).unwrap_err();
        assert!(matches!(error, UnixSocketError::NotASocket(_)), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"text");
        let missing = directory.path().join("missing/rls.sock");
        let error = UnixSocket::listen(missing).unwrap_err().to_string();
        assert!(
            error.contains("missing/rls.sock") && error.contains("--sockets"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn socket_file_of_a_successor_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("http.sock");
        let first = UnixSocket::listen(path.clone()).unwrap();
        fs::remove_file(&path).unwrap();
        let _second = UnixSocket::listen(path.clone()).unwrap();
        drop(first);
        assert!(path.exists());
    }
}
