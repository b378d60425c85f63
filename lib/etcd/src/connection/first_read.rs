//! Notes why a TLS connection ended before the member sent anything. With TLS 1.3 a server refuses the
//! certificate of a client only after the handshake, and HTTP/2 forgets the alert that says so.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use plimsoll_tls::HandshakeFailure;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Why the member refused the last connection, until a request has taken it.
#[derive(Clone, Default)]
pub(super) struct Refusal(Arc<Mutex<Option<String>>>);

pub(super) struct FirstRead {
    stream: TlsStream<TcpStream>,
    refusal: Refusal,
    is_over: bool,
    /// Why a write failed before the first read.
    broken: Option<io::Error>,
}

impl Refusal {
    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, cause: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause);
    }
}

impl FirstRead {
    pub(super) fn new(stream: TlsStream<TcpStream>, refusal: Refusal) -> Self {
        Self {
            stream,
            refusal,
            is_over: false,
            broken: None,
        }
    }
}

impl AsyncRead for FirstRead {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        if !std::mem::replace(&mut self.is_over, true)
            && let Err(error) = &read
            && is_alert(error)
        {
            self.refusal.set(HandshakeFailure::of(error).to_string());
        }
        Poll::Ready(read)
    }
}

impl FirstRead {
    /// Waits after a failed write for what the member sent before it closed the connection.
    fn poll_last<T>(
        &mut self,
        wrote: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        let error = match (self.broken.take(), wrote) {
            (Some(error), _) => error,
            (None, Poll::Ready(Err(error))) if !self.is_over => error,
            (None, wrote) => return wrote,
        };
        let mut byte = [0];
        let read = Pin::new(&mut *self).poll_read(context, &mut ReadBuf::new(&mut byte));
        if read.is_pending() {
            self.broken = Some(error);
            return Poll::Pending;
        }
        Poll::Ready(Err(error))
    }
}

impl AsyncWrite for FirstRead {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.poll_last(wrote, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.poll_last(wrote, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let wrote = Pin::new(&mut self.stream).poll_flush(context);
        self.poll_last(wrote, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

fn is_alert(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    matches!(cause, Some(rustls::Error::AlertReceived(_)))
}
