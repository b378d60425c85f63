//! How streams are carried: connections that notice within three seconds that nobody is at the other end.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::stream::unfold;
use plimsoll_core::exchange::Parent;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::sleep;
use tokio_stream::Stream;
use tonic::transport::{Endpoint, Server};

use crate::MESSAGE_BYTES_MAX;
use crate::parent::ParentService;

/// How often the other end is asked for a sign of life.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// How long it may take to give one: with the interval, a dead stream ends within 3 s.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a connection attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// What may be on its way to a child that does not read: one message of the largest size. What comes after it waits
/// in the parent's state machine, where it is conflated; the transport's own default would let megabytes of old news
/// pile up first.
const UNREAD_BYTES_MAX: u32 = MESSAGE_BYTES_MAX as u32;
/// Streams on one connection; a child needs one, a health check another.
const STREAMS_PER_CONNECTION_MAX: u32 = 64;

/// Connections that wait in the system's queue until they are taken; the system may allow fewer.
const WAITING_MAX: u32 = 16_384;
/// Connections taken in a row, and the pause until the next ones are: some 3,000 a second, a third of a core at most.
const CONNECTIONS_PER_TURN: usize = 16;
const TURN: Duration = Duration::from_millis(5);

/// An address that cannot be connected to.
#[derive(Debug, thiserror::Error)]
#[error("`{address}` is no address of a parent: write it as http://HOST:PORT")]
pub struct InvalidEndpoint {
    /// What was given.
    address: String,
}

/// A parent to connect to, at `http://HOST:PORT`.
///
/// # Errors
/// When `address` is not such a URI.
pub fn endpoint(address: &str) -> Result<Endpoint, InvalidEndpoint> {
    let invalid = || InvalidEndpoint { address: address.to_owned() };
    let endpoint = Endpoint::from_shared(address.to_owned()).map_err(|_| invalid())?;
    if endpoint.uri().scheme_str() != Some("http") || endpoint.uri().port_u16().is_none() {
        return Err(invalid());
    }
    Ok(endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .initial_stream_window_size(UNREAD_BYTES_MAX)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true))
}

/// Why a parent stopped serving.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address could not be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The server failed.
    #[error("the gRPC server failed: {0}")]
    Server(#[from] tonic::transport::Error),
}

/// Listens on `address`, with room for a whole fleet that returns.
///
/// # Errors
/// When the address is taken or not ours.
#[allow(clippy::unused_async)] // A listener needs the runtime that an `async fn` is sure to have.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, ServeError> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let listen = |socket: TcpSocket| {
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(WAITING_MAX)
    };
    socket.and_then(listen).map_err(|source| ServeError::Listen { address, source })
}

/// Connections as they come, but no more of them at once than leaves time for those who are there already: the rest wait
/// in the system's queue.
fn in_turns(listener: TcpListener) -> impl Stream<Item = std::io::Result<TcpStream>> {
    let turns = async move |(listener, left): (TcpListener, usize)| {
        let left = if left == 0 {
            sleep(TURN).await;
            CONNECTIONS_PER_TURN
        } else {
            left
        };
        let accepted = listener.accept().await.and_then(|(stream, _)| {
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        Some((accepted, (listener, left - 1)))
    };
    unfold((listener, CONNECTIONS_PER_TURN), turns)
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
        .serve_with_incoming_shutdown(in_turns(listener), shutdown)
        .await
        .map_err(ServeError::from)
}
