//! The bytes of a connection, read so that its end can be explained. A parent that accepts only TLS
//! answers plaintext with an alert, which explains more than the failure that follows. A killed
//! peer sends no farewell of TLS.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Duplex;

pub(crate) struct Watched<S> {
    /// The socket, or the TLS stream over it.
    stream: S,
    /// The first byte received.
    first: Arc<OnceLock<u8>>,
    /// The error of a failed write, held until the first byte or the end of the connection is read.
    failed: Option<io::Error>,
}

impl<S: Duplex> Watched<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            first: Arc::default(),
            failed: None,
        }
    }

    pub(crate) fn first(&self) -> Arc<OnceLock<u8>> {
        Arc::clone(&self.first)
    }

    /// Delays a failed write until the first byte of the peer is known, which may be that of an alert. The byte read here
    /// is lost: the connection has failed anyway.
    fn fail_after_first_byte(
        &mut self,
        context: &mut Context<'_>,
        failed: io::Error,
    ) -> Poll<io::Result<usize>> {
        if self.first.get().is_none() {
            let read = Pin::new(&mut *self).poll_read(context, &mut ReadBuf::new(&mut [0]));
            if read.is_pending() {
                self.failed = Some(failed);
                return Poll::Pending;
            }
        }
        Poll::Ready(Err(failed))
    }

    fn poll_write_with(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Some(failed) = self.failed.take() {
            return self.fail_after_first_byte(context, failed);
        }
        match ready!(write(Pin::new(&mut self.stream), context)) {
            Ok(written) => Poll::Ready(Ok(written)),
            Err(failed) => self.fail_after_first_byte(context, failed),
        }
    }
}

impl<S: Duplex> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let held = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Some(byte) = buffer.filled().get(held) {
            self.first.get_or_init(|| *byte);
        }
        match read {
            // A peer that was killed ends TLS without a farewell. The framing of HTTP/2 detects a message that was cut.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Poll::Ready(Ok(()))
            }
            read => read,
        }
    }
}

impl<S: Duplex> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(context, |stream, context| stream.poll_write(context, bytes))
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
        self.poll_write_with(context, |stream, context| {
            stream.poll_write_vectored(context, slices)
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
