//! The gRPC server of a parent: listens with a large backlog, and closes connections without a
//! greeting.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::stream::unfold;
use plimsoll_core::exchange::Parent;
use plimsoll_core::exchange::admission::Admission;
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::sleep;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use super::accept::{Acceptor, Connections};
use super::guarded::Guarded;
use super::socket::PortSecurity;
use crate::driver::parent::ParentService;
use crate::shared::Shared;

/// Maximum number of streams on one connection; further ones wait. A child needs one, a health
/// check another.
const STREAMS_PER_CONNECTION_MAX: u32 = 8;
/// Maximum number of connections in the accept queue of the operating system, which may allow
/// fewer.
const BACKLOG_MAX: u32 = 16_384;

/// Maximum time that a shutdown waits for connections. Streams have had their final status by then;
/// a connection without a greeting of HTTP/2 ends at its deadline.
const SHUTDOWN_MAX: Duration = Duration::from_secs(2);

/// Reason why a parent cannot serve, or stopped serving.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be bound.
    #[error(
        "{flag}: cannot listen on {address}: {source}; give an address of this machine with a free port"
    )]
    Listen {
        /// The flag that has the address.
        flag: &'static str,
        /// The address to bind.
        address: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The server failed.
    #[error("the gRPC server failed: {0}")]
    Server(#[from] tonic::transport::Error),
}

/// Listens on the `address` of `flag`, with a backlog for a whole fleet that reconnects together.
///
/// # Errors
/// If the address is in use or is not an address of this machine.
#[allow(clippy::unused_async)] // A listener needs a runtime, which an `async fn` is sure to have.
pub async fn listen(flag: &'static str, address: SocketAddr) -> Result<TcpListener, ServeError> {
    open(flag, bind(flag, address)?)
}

/// Reserves an address, and refuses connections until it is [opened](open).
///
/// # Errors
/// If the address is in use, or is none of this host.
pub fn bind(flag: &'static str, address: SocketAddr) -> Result<TcpSocket, ServeError> {
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
    socket.and_then(bind).map_err(|source| ServeError::Listen {
        flag,
        address,
        source,
    })
}

/// Opens a port that was [reserved](bind).
///
/// # Errors
/// If another process listens on it.
pub fn open(flag: &'static str, socket: TcpSocket) -> Result<TcpListener, ServeError> {
    let address = socket
        .local_addr()
        .unwrap_or_else(|_| SocketAddr::from(([0; 4], 0)));
    socket
        .listen(BACKLOG_MAX)
        .map_err(|source| ServeError::Listen {
            flag,
            address,
            source,
        })
}

fn accept(
    listener: TcpListener,
    connections: Connections,
    admission: Shared<Admission>,
    security: PortSecurity,
) -> impl Stream<Item = Result<Guarded, Infallible>> {
    let accept = async |(mut acceptor, security): (Acceptor, PortSecurity)| {
        let accepted = acceptor.next().await;
        let guarded = Guarded::new(accepted, &security, acceptor.connections.clone());
        Some((Ok(guarded), (acceptor, security)))
    };
    unfold(
        (
            Acceptor::new(listener, connections).with_admission(admission),
            security,
        ),
        accept,
    )
}

/// Serves a parent and the standard gRPC health service on `listener` until `shutdown` completes.
///
/// # Errors
/// If the server fails.
pub async fn serve<P: Parent + Send + 'static>(
    listener: TcpListener,
    connections: Connections,
    parent: ParentService<P>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let (admission, security) = (parent.admission(), parent.security().clone());
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<ParentService<P>>().await;
    let stopping = CancellationToken::new();
    let stop = stopping.clone();
    let shutdown = async move {
        shutdown.await;
        stop.cancel();
    };
    let served = Server::builder()
        .max_concurrent_streams(Some(STREAMS_PER_CONNECTION_MAX))
        .add_service(health_service)
        .add_service(parent)
        .serve_with_incoming_shutdown(accept(listener, connections, admission, security), shutdown);
    let overdue = async {
        stopping.cancelled().await;
        sleep(SHUTDOWN_MAX).await;
    };
    tokio::select! {
        served = served => served.map_err(ServeError::from),
        () = overdue => Ok(()),
    }
}
