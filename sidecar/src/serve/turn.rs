//! Turns of connections: each reads a little, and lets its requests and other connections run
//! before it reads more. Otherwise a peer that opens and resets streams as fast as possible piles
//! up tasks, and nothing else runs.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, Take};

use super::Stream;
use super::http2::STREAMS_PER_CONNECTION_MAX;
use super::room::Open;

const TURN_BYTES: u64 = 4 * 1024;

/// Turns of one connection. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// Bytes that may still be read in this turn.
    left: AtomicU64,
    /// Requests over HTTP/2 that are not answered.
    running: AtomicUsize,
    reader: AtomicWaker,
}

/// Request over HTTP/2 that is not answered, until this is dropped.
pub(super) struct Running(Turns);

pub(super) struct InTurns {
    stream: Take<Stream>,
    turns: Turns,
    /// Bytes read for a request over HTTP/1.1, until it is answered; `None` over HTTP/2.
    head: Option<Arc<Open>>,
}

impl InTurns {
    pub(super) fn new(stream: Stream, turns: Turns, head: Option<Arc<Open>>) -> Self {
        Self {
            stream: stream.take(0),
            turns,
            head,
        }
    }
}

impl Turns {
    /// Polls the connection for a turn.
    pub(super) fn poll<F: Future + Unpin>(
        &self,
        connection: &mut F,
        context: &mut Context<'_>,
    ) -> Poll<F::Output> {
        self.0.left.store(TURN_BYTES, Ordering::Relaxed);
        Pin::new(connection).poll(context)
    }

    /// Counts a request as running until the result is dropped.
    pub(super) fn request(&self) -> Running {
        self.0.running.fetch_add(1, Ordering::Relaxed);
        Running(self.clone())
    }

    /// Returns true if more requests run than a peer may have streams: it has reset some, and these
    /// are about to end.
    fn is_behind(&self) -> bool {
        self.0.running.load(Ordering::Acquire) > STREAMS_PER_CONNECTION_MAX as usize
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Self(Turns(state)) = self;
        state.running.fetch_sub(1, Ordering::Release);
        state.reader.wake();
    }
}

impl AsyncRead for InTurns {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let turns = self.turns.clone();
        if turns.is_behind() {
            turns.0.reader.register(context.waker());
            if turns.is_behind() {
                return Poll::Pending;
            }
        }
        let left = turns.0.left.load(Ordering::Relaxed);
        if left == 0 {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.stream.set_limit(left);
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        turns.0.left.store(self.stream.limit(), Ordering::Relaxed);
        let read = usize::try_from(left - self.stream.limit()).unwrap_or(usize::MAX);
        if self.head.as_ref().is_some_and(|head| !head.add(read)) {
            return Poll::Ready(Err(io::Error::other("too many requests have begun")));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for InTurns {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.stream.get_mut()).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_shutdown(context)
    }
}
