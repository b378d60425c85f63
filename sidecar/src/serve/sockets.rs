//! The directory of the Unix sockets: the one that is given, or else the first usable one of where services keep theirs.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{UnixSocket, UnixSocketError};

/// The file of the Unix socket of the rate limit service.
const RLS_SOCKET: &str = "rls.sock";
/// The file of the Unix socket of checks over HTTP.
const HTTP_SOCKET: &str = "http.sock";
/// The directory of services that run as root.
const OF_SYSTEM: &str = "/run/plimsoll";

/// The place of the Unix sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SocketDirectory {
    /// There are none.
    None,
    /// In this directory, or the process does not start.
    Given(PathBuf),
    /// In this directory if it can be made, or else there are none.
    Found(PathBuf),
}

/// The Unix sockets of a sidecar.
#[derive(Debug, Default)]
pub(crate) struct UnixSockets {
    pub(crate) rls: Option<UnixSocket>,
    pub(crate) http: Option<UnixSocket>,
}

impl SocketDirectory {
    /// Finds the directory in the environment: that which systemd gives to a service, that of the user, or that of the
    /// system.
    pub(crate) fn find(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let of = |name| variable(name).filter(|value| !value.is_empty());
        // systemd separates several directories by colons.
        let of_service = of("RUNTIME_DIRECTORY")
            .and_then(|value| std::env::split_paths(&value).next().filter(|path| path.is_absolute()));
        let of_user = || Some(Path::new(&of("XDG_RUNTIME_DIR")?).join("plimsoll"));
        Self::Found(of_service.or_else(of_user).unwrap_or_else(|| OF_SYSTEM.into()))
    }

    /// Listens on both sockets. Blocks for a moment.
    ///
    /// # Errors
    /// When a socket of a given directory cannot be listened on.
    pub(crate) fn listen(&self) -> Result<UnixSockets, UnixSocketError> {
        let (directory, is_given) = match self {
            Self::None => return Ok(UnixSockets::default()),
            Self::Given(directory) => (directory, true),
            Self::Found(directory) => (directory, false),
        };
        let made =
            make(directory).map_err(|source| UnixSocketError::System { path: directory.clone(), source });
        let listen = || {
            made?;
            let socket = |file| UnixSocket::listen(directory.join(file)).map(Some);
            Ok(UnixSockets { rls: socket(RLS_SOCKET)?, http: socket(HTTP_SOCKET)? })
        };
        match listen() {
            Err(error) if !is_given => {
                tracing::warn!(%error, "no Unix sockets: the sidecar is reached over TCP alone; --sockets DIR says where they are");
                Ok(UnixSockets::default())
            }
            listened => listened,
        }
    }
}

/// Makes the directory, but none above it.
fn make(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_the_first_of_service_user_and_system() {
        for (service, user, expected) in [
            (Some("/run/a:/run/b"), Some("/run/user/1"), "/run/a"),
            (Some("/run/a"), None, "/run/a"),
            (Some("relative"), Some("/run/user/1"), "/run/user/1/plimsoll"),
            (Some(""), Some("/run/user/1"), "/run/user/1/plimsoll"),
            (None, Some(""), "/run/plimsoll"),
            (None, None, "/run/plimsoll"),
        ] {
            let found = SocketDirectory::find(|name| {
                let value = if name == "RUNTIME_DIRECTORY" { service } else { user };
                value.map(OsString::from)
            });
            assert_eq!(found, SocketDirectory::Found(expected.into()), "{service:?} {user:?}");
        }
    }

    #[tokio::test]
    async fn directory_that_is_not_given_may_be_unusable() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("missing/plimsoll");
        assert!(SocketDirectory::Given(path.clone()).listen().is_err());
        let none = SocketDirectory::Found(path).listen().unwrap();
        assert!(none.rls.is_none() && none.http.is_none());
        let made = directory.path().join("plimsoll");
        let sockets = SocketDirectory::Found(made.clone()).listen().unwrap();
        assert!(sockets.rls.is_some() && made.join(HTTP_SOCKET).exists());
        // A second sidecar of the machine does not fail to start for its default directory.
        assert!(SocketDirectory::Found(made.clone()).listen().unwrap().rls.is_none());
        assert!(matches!(SocketDirectory::Given(made).listen(), Err(UnixSocketError::InUse(_))));
        assert!(SocketDirectory::None.listen().unwrap().http.is_none());
    }
}
