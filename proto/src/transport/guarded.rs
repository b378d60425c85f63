//! A connection that is closed unless a stream on it has greeted: peers that connect and stay silent, at any step from
//! the TCP connection to the greeting, cost nothing for long.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use plimsoll_core::exchange::Source;
use plimsoll_core::exchange::admission::ConnectionBudget;
use plimsoll_core::quantity::MonoTime;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::transport::server::Connected;

use super::accept::{Connections, Place};

/// The longest time that a connection lasts without a stream that has greeted, while its peer sends nothing.
const SILENT_MAX: Duration = Duration::from_secs(30);
/// The longest time that it lasts whatever its peer sends. A busy process may be late to read it.
const UNGREETED_MAX: Duration = Duration::from_secs(120);

/// A connection with deadlines.
#[derive(Debug)]
pub(super) struct Guarded {
    stream: TcpStream,
    guard: ConnectionGuard,
    connections: Connections,
    check: Pin<Box<Sleep>>,
}

/// The streams on one connection that have greeted. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionGuard {
    state: Arc<Mutex<Greetings>>,
}

#[derive(Debug)]
struct Greetings {
    place: Place,
    /// Streams that have greeted.
    streams: usize,
    /// The time since which there is none.
    none_since: Instant,
    budget: ConnectionBudget,
}

/// A stream that has greeted, until it is dropped.
#[derive(Debug)]
pub(crate) struct Greeted {
    guard: ConnectionGuard,
}

// === impl ConnectionGuard ===

impl ConnectionGuard {
    fn new(place: Place) -> Self {
        let greetings =
            Greetings { place, streams: 0, none_since: Instant::now(), budget: ConnectionBudget::default() };
        Self { state: Arc::new(Mutex::new(greetings)) }
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

    /// The source of the connection.
    pub(crate) fn source(&self) -> Source {
        self.greetings().place.source()
    }

    /// Returns false if the connection has opened too many streams lately.
    pub(crate) fn may_open(&self, now: MonoTime) -> bool {
        self.greetings().budget.take(now)
    }

    /// Returns the time since which no stream has greeted, unless one has.
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
    pub(super) fn new(stream: TcpStream, place: Place, connections: Connections) -> Self {
        let check = Box::pin(sleep_until(Instant::now() + SILENT_MAX));
        Self { stream, guard: ConnectionGuard::new(place), connections, check }
    }

    /// Fails once there has been no greeting for `longest`.
    fn check(&self, longest: Duration) -> io::Result<()> {
        if self.guard.none_since().is_some_and(|since| since.elapsed() >= longest) {
            self.connections.on_timeout();
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no greeting came in time"));
        }
        Ok(())
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
        if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(context, buffer) {
            return Poll::Ready(read.and_then(|()| self.check(UNGREETED_MAX)));
        }
        while self.check.as_mut().poll(context).is_ready() {
            if let Err(error) = self.check(SILENT_MAX) {
                return Poll::Ready(Err(error));
            }
            let next = self.guard.none_since().unwrap_or_else(Instant::now) + SILENT_MAX;
            self.check.as_mut().reset(next);
        }
        Poll::Pending
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
