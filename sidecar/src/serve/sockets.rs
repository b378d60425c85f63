//! The Unix sockets of both ports, in one directory.

use std::fs;
use std::io;
use std::path::Path;

use super::{UnixSocket, UnixSocketError};

const RLS_SOCKET: &str = "rls.sock";
const HTTP_SOCKET: &str = "http.sock";

#[derive(Debug, Default)]
pub(crate) struct UnixSockets {
    pub(crate) rls: Option<UnixSocket>,
    pub(crate) http: Option<UnixSocket>,
}

impl UnixSockets {
    /// Listens in a directory, which is created if its parent exists. Blocks for a moment.
    ///
    /// # Errors
    /// When a socket cannot be listened on.
    pub(crate) fn listen(directory: &Path) -> Result<Self, UnixSocketError> {
        match fs::create_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => {
                made.map_err(|source| UnixSocketError::System {
                    path: directory.to_owned(),
                    source,
                })?;
            }
        }
        let socket = |file| UnixSocket::listen(directory.join(file)).map(Some);
        Ok(Self {
            rls: socket(RLS_SOCKET)?,
            http: socket(HTTP_SOCKET)?,
        })
    }
}
