//! A connection that is closed unless a stream on it has greeted: peers that connect and stay silent, at any step from
//! the TCP connection to the greeting, cost nothing for long.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use plimsoll_core::exchange::Source;
use plimsoll_core::exchange::admission::ConnectionBudget;
use plimsoll_core::quantity::MonoTime;
use plimsoll_net::{ConnectionPlace, Connections, NOT_PLAINTEXT};
use plimsoll_tls::Certificates;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::transport::server::Connected;

use super::Duplex;
use super::socket::{Certified, Socket};

/// Maximum time that a connection lasts without a stream that has greeted, if no bytes of its peer wait
/// to be read.
const SILENT_MAX: Duration = Duration::from_secs(30);
/// Maximum time that it lasts without such a stream, even if bytes wait. A busy process may be late to
/// read them.
const UNGREETED_MAX: Duration = Duration::from_secs(120);

/// The first byte of a TLS connection. No connection of HTTP/2 begins with it.
const TLS_HANDSHAKE: u8 = 0x16;

pub(super) struct Guarded {
    socket: Socket,
    peer: IpAddr,
    /// No byte was read yet.
    is_new: bool,
    guard: ConnectionGuard,
    connections: Connections,
    /// The time of the next check for a greeting.
    check: Pin<Box<Sleep>>,
    /// Completes when another connection needs the place of this one.
    displaced: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// The streams on one connection that have greeted. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionGuard {
    state: Arc<Mutex<Greetings>>,
}

#[derive(Debug)]
struct Greetings {
    place: ConnectionPlace,
    streams: usize,
    /// The opening of the connection, or the end of the last stream to end.
    none_since: Instant,
    budget: ConnectionBudget,
    /// The certificates of both ends; `None` in plaintext.
    certified: Option<Certified>,
}

/// A stream that has greeted, until it is dropped.
#[derive(Debug)]
pub(crate) struct Greeted {
    guard: ConnectionGuard,
}

// === impl ConnectionGuard ===

impl ConnectionGuard {
    fn new(place: ConnectionPlace) -> Self {
        let greetings = Greetings {
            place,
            streams: 0,
            none_since: Instant::now(),
            budget: ConnectionBudget::default(),
            certified: None,
        };
        Self {
            state: Arc::new(Mutex::new(greetings)),
        }
    }

    /// Notes that a stream has greeted.
    pub(crate) fn greeted(self) -> Greeted {
        {
            let mut greetings = self.greetings();
            greetings.place.settle();
            greetings.streams += 1;
        }
        Greeted { guard: self }
    }

    pub(crate) fn source(&self) -> Source {
        self.greetings().place.source()
    }

    pub(crate) fn certified(&self) -> Option<Certified> {
        self.greetings().certified.clone()
    }

    /// Counts a new stream. Returns false if the connection has opened too many lately.
    pub(crate) fn may_open(&self, now: MonoTime) -> bool {
        self.greetings().budget.take(now)
    }

    /// Returns since when no stream has been open that has greeted; `None` if there is one.
    fn none_since(&self) -> Option<Instant> {
        let greetings = self.greetings();
        (greetings.streams == 0).then_some(greetings.none_since)
    }

    fn greetings(&self) -> MutexGuard<'_, Greetings> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Greeted {
    fn drop(&mut self) {
        let mut greetings = self.guard.greetings();
        greetings.streams -= 1;
        greetings.none_since = Instant::now();
    }
}

// === impl Guarded ===

impl Guarded {
    pub(super) fn new(
        (stream, peer, place): (TcpStream, SocketAddr, ConnectionPlace),
        certificates: Option<&Certificates>,
        connections: Connections,
    ) -> Self {
        let check = Box::pin(sleep_until(Instant::now() + SILENT_MAX));
        let displaced = Box::pin(place.closed().clone().cancelled_owned());
        let guard = ConnectionGuard::new(place);
        Self {
            socket: Socket::new(stream, certificates),
            peer: peer.ip(),
            is_new: true,
            guard,
            connections,
            check,
            displaced,
        }
    }

    /// Returns the bytes of the connection once its handshake is over.
    fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Pin<&mut dyn Duplex>>> {
        match self.socket.poll_handshake(context) {
            Poll::Pending => return self.poll_deadline(context).map(Err),
            Poll::Ready(Ok(None)) => {}
            Poll::Ready(Ok(certified)) => self.guard.greetings().certified = certified,
            Poll::Ready(Err(failed)) => {
                if let Some(reason) = failed.reason {
                    self.connections
                        .on_handshake_failed(self.peer, reason, &failed.cause);
                }
                return Poll::Ready(Err(io::Error::other(failed.cause)));
            }
        }
        Poll::Ready(self.socket.bytes())
    }

    /// Waits until there has been no greeting for too long, or until another connection takes the place of one without
    /// a greeting.
    fn poll_deadline(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        if self.guard.none_since().is_some() && self.displaced.as_mut().poll(context).is_ready() {
            return Poll::Ready(self.too_late());
        }
        loop {
            ready!(self.check.as_mut().poll(context));
            if let Err(error) = self.check(SILENT_MAX) {
                return Poll::Ready(error);
            }
            let next = self.guard.none_since().unwrap_or_else(Instant::now) + SILENT_MAX;
            self.check.as_mut().reset(next);
        }
    }

    /// Fails if the first bytes are a TLS handshake, which a plaintext port does not take.
    fn check_first(&mut self, bytes: &[u8]) -> io::Result<()> {
        let is_first = std::mem::replace(&mut self.is_new, false);
        if is_first && self.socket.is_plain() && bytes.first() == Some(&TLS_HANDSHAKE) {
            let cause = "the peer began with TLS, and this port takes plaintext alone: start this process with \
                         certificates, or write the address at the peer as http://";
            self.connections
                .on_handshake_failed(self.peer, NOT_PLAINTEXT, &cause);
            return Err(io::Error::other(cause));
        }
        Ok(())
    }

    /// Fails if no stream that has greeted was open for `longest`.
    fn check(&self, longest: Duration) -> io::Result<()> {
        if self
            .guard
            .none_since()
            .is_some_and(|since| since.elapsed() >= longest)
        {
            return Err(self.too_late());
        }
        Ok(())
    }

    fn too_late(&self) -> io::Error {
        self.connections.on_timeout();
        io::Error::new(io::ErrorKind::TimedOut, "no greeting came in time")
    }
}

impl Connected for Guarded {
    type ConnectInfo = ConnectionGuard;

    fn connect_info(&self) -> ConnectionGuard {
        self.guard.clone()
    }
}

impl AsyncRead for Guarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let held = buffer.filled().len();
        let Poll::Ready(read) = ready!(self.poll_open(context))?.poll_read(context, buffer) else {
            return self.poll_deadline(context).map(Err);
        };
        read?;
        self.check_first(&buffer.filled()[held..])?;
        Poll::Ready(self.check(UNGREETED_MAX))
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(context))?.poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_open(context))?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Before the end of its handshake the connection is dropped without an answer.
        self.socket
            .bytes()
            .map_or(Poll::Ready(Ok(())), |stream| stream.poll_shutdown(context))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(context))?.poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::exchange::PeerRole;
    use plimsoll_net::Acceptor;
    use plimsoll_tls::testing::{Authority, Validity};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    async fn port() -> (Certificates, SocketAddr, Acceptor, Connections) {
        let directory = tempfile::tempdir().unwrap();
        Authority::new("a").write(directory.path(), PeerRole::Controller, Validity::default());
        let certificates = Certificates::open(directory.path()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Connections::default();
        (
            certificates,
            address,
            Acceptor::new(listener, connections.clone()),
            connections,
        )
    }

    #[tokio::test]
    async fn silent_close_is_no_failed_handshake() {
        let (certificates, address, mut acceptor, connections) = port().await;
        for (sent, failures) in [(&b""[..], 0), (b"GET / HTTP/1.1\r\n\r\n", 1), (b"", 1)] {
            let mut peer = TcpStream::connect(address).await.unwrap();
            peer.write_all(sent).await.unwrap();
            drop(peer);
            let mut guarded = Guarded::new(
                acceptor.next().await,
                Some(&certificates),
                connections.clone(),
            );
            assert!(guarded.read_u8().await.is_err());
            assert_eq!(
                connections.failed_handshakes().values().sum::<u64>(),
                failures
            );
        }
        assert_eq!(connections.failed_handshakes()["not_tls"], 1);
    }

    #[tokio::test(start_paused = true)]
    async fn displaced_connection_ends() {
        let (certificates, address, mut acceptor, connections) = port().await;
        let _peer = TcpStream::connect(address).await.unwrap();
        let (stream, peer, place) = acceptor.next().await;
        place.closed().cancel();
        let began = Instant::now();
        let mut guarded = Guarded::new(
            (stream, peer, place),
            Some(&certificates),
            connections.clone(),
        );
        assert_eq!(
            guarded.read_u8().await.unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        assert!(began.elapsed() < SILENT_MAX && connections.counts().timed_out == 1);
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_handshake_ends_in_time() {
        let (certificates, address, mut acceptor, connections) = port().await;
        // Nothing, and the begin of a greeting of TLS.
        for (timed_out, sent) in [(1, &[][..]), (2, &[TLS_HANDSHAKE, 3, 1, 2, 0, 1])] {
            let mut peer = TcpStream::connect(address).await.unwrap();
            peer.write_all(sent).await.unwrap();
            let mut guarded = Guarded::new(
                acceptor.next().await,
                Some(&certificates),
                connections.clone(),
            );
            let began = Instant::now();
            let error = if timed_out == 1 {
                guarded.read_u8().await.unwrap_err()
            } else {
                guarded.write_u8(0).await.unwrap_err()
            };
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
            assert!(
                (SILENT_MAX..SILENT_MAX * 2).contains(&began.elapsed()),
                "{:?}",
                began.elapsed()
            );
            assert_eq!(
                (connections.counts().timed_out, connections.counts().pending),
                (timed_out, 1)
            );
        }
        assert_eq!(connections.counts().pending, 0);
    }
}
