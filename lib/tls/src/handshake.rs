//! Handshakes of both ends, which return a verified peer or the cause of the failure.

use std::future::poll_fn;
use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, CommonState, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use crate::failure::HandshakeFailure;
use crate::peer::Peer;

/// Accepts a connection on the port of a parent. The caller limits the time.
///
/// The certificate of a resumed session may have expired since it was verified. Such a peer is
/// returned ([`Peer::is_expired`]), so that its streams can be ended with a text that it can read.
///
/// # Errors
/// If the handshake fails, the certificate names no identity, or no protocol was agreed. Roles are not
/// checked here.
pub async fn accept<IO>(
    config: Arc<ServerConfig>,
    io: IO,
) -> Result<(server::TlsStream<IO>, Peer), HandshakeFailure>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let stream = TlsAcceptor::from(config)
        .accept(io)
        .await
        .map_err(|error| HandshakeFailure::of(&error))?;
    let peer = verified(stream.get_ref().1)?;
    Ok((stream, peer))
}

/// Opens a connection to a parent. The caller limits the time.
///
/// Returns when the parent has accepted the certificate: a TLS 1.3 client finishes its handshake
/// before that, and would see a refusal as a broken stream.
///
/// # Errors
/// If the handshake fails at either end, the parent's certificate names no identity or has expired, or no
/// protocol was agreed. Roles are not checked here.
pub async fn connect<IO>(
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
    io: IO,
) -> Result<(client::TlsStream<IO>, Peer), HandshakeFailure>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let failed = |error| HandshakeFailure::of(&error);
    let mut stream = TlsConnector::from(config)
        .connect(server, io)
        .await
        .map_err(failed)?;
    poll_fn(|cx| poll_accepted(&mut stream, cx))
        .await
        .map_err(failed)?;
    let peer = verified(stream.get_ref().1)?;
    // A resumed session does not verify the certificate again.
    if peer.is_expired(SystemTime::now()) {
        return Err(HandshakeFailure::expired(&peer));
    }
    Ok((stream, peer))
}

fn verified(session: &CommonState) -> Result<Peer, HandshakeFailure> {
    let peer =
        Peer::of(session.peer_certificates()).map_err(|error| HandshakeFailure::of_peer(&error))?;
    match session.alpn_protocol() {
        Some(_) => Ok(peer),
        None => Err(HandshakeFailure::no_alpn()),
    }
}

/// Reads until the server has sent its ticket or data. It sends them only to an accepted client.
fn poll_accepted<IO>(
    stream: &mut client::TlsStream<IO>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>>
where
    IO: AsyncRead + Unpin,
{
    let (io, session) = stream.get_mut();
    loop {
        let state = session
            .process_new_packets()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        if session.tls13_tickets_received() > 0 || state.plaintext_bytes_to_read() > 0 {
            return Poll::Ready(Ok(()));
        }
        match session.read_tls(&mut Polled {
            io: &mut *io,
            cx: &mut *cx,
        }) {
            Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

/// Adapts an async stream to the [`Read`] that rustls needs; returns `WouldBlock` where a task would wait.
struct Polled<'a, 'b, IO> {
    io: &'a mut IO,
    cx: &'a mut Context<'b>,
}

impl<IO: AsyncRead + Unpin> Polled<'_, '_, IO> {
    fn poll(&mut self, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(Pin::new(&mut *self.io).poll_read(self.cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }
}

impl<IO: AsyncRead + Unpin> Read for Polled<'_, '_, IO> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.poll(buffer) {
            Poll::Ready(read) => read,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}
