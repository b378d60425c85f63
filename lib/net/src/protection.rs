//! The protection of a port: plaintext, or TLS after a handshake with a deadline.

use std::time::Duration;

use plimsoll_tls::tokio_rustls::TlsAcceptor;
use plimsoll_tls::tokio_rustls::server::TlsStream;
use plimsoll_tls::{Certificates, HandshakeFailure};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::either::Either;

const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// The bytes of a connection: plaintext on the left, TLS on the right.
pub type Stream = Either<TcpStream, TlsStream<TcpStream>>;

/// Protection of the connections of a port.
#[derive(Clone, Debug)]
pub enum Protection {
    /// Plaintext, on loopback or by `--insecure`.
    Plain,
    /// TLS without a certificate of the peer.
    Tls(Certificates),
    /// TLS with a certificate of the peer, of the own trust domain.
    Mutual(Certificates),
}

impl Protection {
    pub(super) async fn handshake(&self, stream: TcpStream) -> Result<Stream, HandshakeFailure> {
        let handshake = async {
            match self {
                Self::Plain => Ok(Either::Left(stream)),
                Self::Tls(certificates) => {
                    let acceptor = TlsAcceptor::from(certificates.admin_server());
                    let accepted = acceptor.accept(stream).await.map(Either::Right);
                    accepted.map_err(|error| HandshakeFailure::of(&error))
                }
                Self::Mutual(certificates) => {
                    let accepted = plimsoll_tls::accept(certificates.mutual_server(), stream).await;
                    accepted.map(|(stream, _)| Either::Right(stream))
                }
            }
        };
        timeout(HANDSHAKE_MAX, handshake)
            .await
            .unwrap_or_else(|late| Err(HandshakeFailure::of(&late.into())))
    }
}
