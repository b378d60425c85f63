//! The gRPC server of a parent: listens with a large backlog and accepts connections at a bounded rate.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::stream::unfold;
use plimsoll_core::exchange::Parent;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::sleep;
use tokio_stream::Stream;
use tonic::transport::Server;

use super::{KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT};
use crate::driver::parent::ParentService;

/// The most streams on one connection. A child needs one, a health check another.
const STREAMS_PER_CONNECTION_MAX: u32 = 64;
/// The most connections in the accept queue of the operating system, which may allow fewer.
const BACKLOG_MAX: u32 = 16_384;
/// Connections accepted without a pause.
const ACCEPT_BURST: usize = 16;
/// The pause between bursts: about 3,000 connections per second are accepted, which takes a third of a core
/// at most.
const ACCEPT_PAUSE: Duration = Duration::from_millis(5);

/// Reason why a parent cannot serve, or stopped serving.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address to bind.
        address: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The server failed.
    #[error("the gRPC server failed: {0}")]
    Server(#[from] tonic::transport::Error),
}

/// Listens on `address`, with a backlog for a whole fleet that reconnects at once.
///
/// # Errors
/// When the address is in use or is not an address of this machine.
#[allow(clippy::unused_async)] // A listener needs a runtime, which an `async fn` is sure to have.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, ServeError> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let listen = |socket: TcpSocket| {
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG_MAX)
    };
    socket.and_then(listen).map_err(|source| ServeError::Listen { address, source })
}

/// Accepts connections in bursts, so that established streams keep getting CPU time while a fleet reconnects.
/// The others wait in the accept queue.
fn accept_in_bursts(listener: TcpListener) -> impl Stream<Item = std::io::Result<TcpStream>> {
    let accept = async move |(listener, left): (TcpListener, usize)| {
        let left = if left == 0 {
            sleep(ACCEPT_PAUSE).await;
            ACCEPT_BURST
        } else {
            left
        };
        let accepted = listener.accept().await.and_then(|(stream, _)| {
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        Some((accepted, (listener, left - 1)))
    };
    unfold((listener, ACCEPT_BURST), accept)
}

/// Serves a parent and the standard gRPC health service on `listener` until `shutdown` completes.
///
/// # Errors
/// When the server fails.
pub async fn serve<P: Parent + Send + 'static>(
    listener: TcpListener,
    parent: ParentService<P>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<ParentService<P>>().await;
    Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .max_concurrent_streams(Some(STREAMS_PER_CONNECTION_MAX))
        .add_service(health_service)
        .add_service(parent)
        .serve_with_incoming_shutdown(accept_in_bursts(listener), shutdown)
        .await
        .map_err(ServeError::from)
}
