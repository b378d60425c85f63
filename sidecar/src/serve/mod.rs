//! The ports: listens on TCP and on Unix sockets, with TLS beyond loopback, and bounds the
//! connections in number and in time. The caller provides the protocol: HTTP/1.1, or HTTP/2 for
//! gRPC.

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
use plimsoll_proto::transport::{Acceptor, Connections};
use plimsoll_tls::tokio_rustls::TlsAcceptor;
use plimsoll_tls::{Certificates, HandshakeFailure};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
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

pub(crate) type Stream = Box<dyn Bytes + Send + Unpin>;

pub(crate) trait Bytes: AsyncRead + AsyncWrite {}

impl<T: AsyncRead + AsyncWrite> Bytes for T {}

const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
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

#[derive(Clone, Debug)]
pub(crate) enum Protection {
    /// Plaintext, on loopback or by `--insecure`.
    Plain,
    /// TLS with a certificate of the peer.
    Mutual(Certificates),
    Tls(Certificates),
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
    let tasks = TaskTracker::new();
    let Port {
        tcp,
        unix,
        connections,
        protection,
        needs_token,
        room,
    } = port;
    let converse = move |stream, caller, closing| converse((stream, room.share()), caller, closing);
    let tcp = accept_tcp(
        tcp,
        connections,
        (protection, needs_token),
        &tasks,
        &shutdown,
        converse.clone(),
    );
    let unix = async {
        // The file is removed as soon as no connection is accepted.
        if let Some(unix) = unix {
            accept_unix(&unix, &tasks, &shutdown, converse).await;
        }
    };
    tokio::join!(tcp, unix);
    tasks.close();
    tasks.wait().await;
}

async fn accept_tcp<C, F>(
    listener: TcpListener,
    connections: Connections,
    (protection, needs_token): (Protection, bool),
    tasks: &TaskTracker,
    shutdown: &CancellationToken,
    converse: C,
) where
    C: Fn(Stream, Caller, CancellationToken) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let mut acceptor = Acceptor::new(listener, connections.clone()).without_pauses();
    loop {
        let Some((stream, peer, place)) = shutdown.run_until_cancelled(acceptor.next()).await
        else {
            return;
        };
        let (protection, shutdown, connections) =
            (protection.clone(), shutdown.clone(), connections.clone());
        let converse = converse.clone();
        tasks.spawn(async move {
            let connection = async {
                let stream = shutdown
                    .run_until_cancelled(handshake(stream, &protection))
                    .await;
                let caller = Caller {
                    from: peer.ip().to_canonical(),
                    needs_token,
                };
                match stream {
                    None => {}
                    Some(Ok(stream)) => converse(stream, caller, shutdown.clone()).await,
                    Some(Err(cause)) => {
                        connections.on_handshake_failed(peer.ip(), cause.label(), &cause)
                    }
                }
            };
            place.closed().run_until_cancelled(connection).await
        });
    }
}

async fn accept_unix<C, F>(
    socket: &UnixSocket,
    tasks: &TaskTracker,
    shutdown: &CancellationToken,
    converse: C,
) where
    C: Fn(Stream, Caller, CancellationToken) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
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
            None => return,
            Some(Ok((stream, place))) => {
                is_failing = false;
                let connection = converse(Box::new(stream), caller, shutdown.clone());
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
}

async fn handshake(stream: TcpStream, protection: &Protection) -> Result<Stream, HandshakeFailure> {
    let accepted = match protection {
        Protection::Plain => return Ok(Box::new(stream)),
        Protection::Mutual(certificates) => timeout(
            HANDSHAKE_MAX,
            plimsoll_tls::accept(certificates.mutual_server(), stream),
        )
        .await
        .map(|accepted| accepted.map(|(stream, _)| stream)),
        Protection::Tls(certificates) => {
            let accepted = TlsAcceptor::from(certificates.admin_server()).accept(stream);
            let accepted = timeout(HANDSHAKE_MAX, accepted).await;
            accepted.map(|accepted| accepted.map_err(|error| HandshakeFailure::of(&error)))
        }
    };
    let late =
        |late: tokio::time::error::Elapsed| Err(HandshakeFailure::of(&io::Error::from(late)));
    accepted
        .unwrap_or_else(late)
        .map(|stream| Box::new(stream) as Stream)
}

/// Returns true if other machines can reach the address.
pub(crate) fn is_beyond_loopback(address: SocketAddr) -> bool {
    !plimsoll_core::exchange::is_loopback(address.ip())
}
