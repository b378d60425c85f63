//! Sockets that listen, with a backlog for a whole fleet that reconnects together.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// Maximum number of connections in the accept queue of the operating system, which may allow
/// fewer.
const BACKLOG_MAX: u32 = 16_384;

/// Reason why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error(
    "{flag}: cannot listen on {address}: {source}; give an address of this machine with a free port"
)]
pub struct ListenError {
    flag: &'static str,
    address: SocketAddr,
    source: io::Error,
}

/// Listens on the `address` of `flag`.
///
/// # Errors
/// If the address is in use or is not an address of this machine.
#[allow(clippy::unused_async)] // A listener needs a runtime, which an `async fn` is sure to have.
pub async fn listen(flag: &'static str, address: SocketAddr) -> Result<TcpListener, ListenError> {
    open(flag, bind(flag, address)?)
}

/// Binds an address, and refuses connections until it is [opened](open). Others may bind it, too, until then.
///
/// # Errors
/// If another socket listens on the address, or it is not one of this machine.
pub fn bind(flag: &'static str, address: SocketAddr) -> Result<TcpSocket, ListenError> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    };
    let bind = |socket: TcpSocket| {
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    };
    socket.and_then(bind).map_err(|source| ListenError {
        flag,
        address,
        source,
    })
}

/// Opens a port that was [bound](bind), in a runtime.
///
/// # Errors
/// If another socket, of this process or another one, listens on it by now.
pub fn open(flag: &'static str, socket: TcpSocket) -> Result<TcpListener, ListenError> {
    let address = socket
        .local_addr()
        .unwrap_or_else(|_| SocketAddr::from(([0; 4], 0)));
    socket.listen(BACKLOG_MAX).map_err(|source| ListenError {
        flag,
        address,
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn address_in_use_names_its_flag() {
        let taken = TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap();
        let _listener = listen("--listen", taken).await.unwrap();
        let error = listen("--admin", taken).await.unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("--admin: cannot listen on {taken}: ")),
            "{error}"
        );
    }
}
