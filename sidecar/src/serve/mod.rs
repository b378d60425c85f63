//! The ports: accept connections by TCP, with TLS beyond loopback if there are certificates, and by
//! Unix sockets, and bound them in number and in time. The protocol is HTTP/1.1, or HTTP/2 for gRPC.

mod body;
mod http1;
mod http2;
mod lag;
mod ports;
mod room;
mod sockets;
#[cfg(test)]
mod tests;
mod turn;
mod unix;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use self::room::Share;
use plimsoll_net::{Acceptor, Connections, Protection};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::body::{BodyError, read_within};
pub(crate) use self::http1::serve_http1;
pub(crate) use self::http2::serve_http2;
pub(crate) use self::lag::Lag;
pub(crate) use self::ports::Ports;
pub(crate) use self::room::Room;
pub(crate) use self::sockets::UnixSockets;
pub(crate) use self::unix::UnixSocket;
pub use self::unix::UnixSocketError;

/// Bytes of a connection: by TCP on the left, by a Unix socket on the right.
pub(crate) type Stream = Either<plimsoll_net::Stream, UnixStream>;

/// Maximum time for the requests in progress at the end of a connection.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// Pause after a failure to accept: descriptors or memory ran out.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// A loopback address for Unix sockets.
    pub(crate) from: IpAddr,
    /// True if its requests need a token: it connected by TCP to a port beyond loopback.
    pub(crate) needs_token: bool,
}

#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) tcp: TcpListener,
    pub(crate) unix: Option<UnixSocket>,
    pub(crate) connections: Connections,
    pub(crate) protection: Protection,
    pub(crate) needs_token: bool,
    pub(crate) room: Room,
}

/// Accepts connections until `shutdown` is cancelled, and lets `converse` answer each. Returns when
/// all have ended.
async fn serve<C, F>(port: Port, shutdown: CancellationToken, converse: C)
where
    C: Fn((Stream, Share), Caller, CancellationToken) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let Port {
        tcp,
        unix,
        connections,
        protection,
        needs_token,
        room,
    } = port;
    let converse = move |stream, caller, closing| converse((stream, room.share()), caller, closing);
    let unix = serve_unix(unix, shutdown.clone(), converse.clone());
    let acceptor = Acceptor::new(tcp, connections).without_pauses();
    let tcp = plimsoll_net::serve(
        acceptor,
        protection,
        shutdown,
        move |stream, peer, closing| {
            let caller = Caller {
                from: peer.ip().to_canonical(),
                needs_token,
            };
            converse(Either::Left(stream), caller, closing)
        },
    );
    tokio::join!(tcp, unix);
}

async fn serve_unix<C, F>(socket: Option<UnixSocket>, shutdown: CancellationToken, converse: C)
where
    C: Fn(Stream, Caller, CancellationToken) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let Some(socket) = socket else { return };
    let tasks = TaskTracker::new();
    let caller = Caller {
        from: IpAddr::from(Ipv4Addr::LOCALHOST),
        needs_token: false,
    };
    let places = Arc::new(Semaphore::new(ports::unix_connections_max()));
    let mut is_failing = false;
    loop {
        let accept = async {
            // The semaphore is never closed.
            let place = Arc::clone(&places)
                .acquire_owned()
                .await
                .map_err(io::Error::other)?;
            Ok::<_, io::Error>((socket.listener.accept().await?.0, place))
        };
        match shutdown.run_until_cancelled(accept).await {
            None => break,
            Some(Ok((stream, place))) => {
                is_failing = false;
                let connection = converse(Either::Right(stream), caller, shutdown.clone());
                tasks.spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Some(Err(error)) => {
                if !std::mem::replace(&mut is_failing, true) {
                    let socket = socket.path().display();
                    tracing::error!(%error, %socket, "connections to the socket cannot be accepted");
                }
                sleep(FAILURE_PAUSE).await;
            }
        }
    }
    // Removes the file as soon as no connection is accepted.
    drop(socket);
    tasks.close();
    tasks.wait().await;
}

/// Returns true if other machines can reach the address.
pub(crate) fn is_beyond_loopback(address: SocketAddr) -> bool {
    !plimsoll_core::exchange::is_loopback(address.ip())
}
