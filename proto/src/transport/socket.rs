//! The bytes of a connection that a parent has accepted, in plaintext or over mTLS. The handshake of a connection
//! runs as its bytes are read and written, so a slow one delays no other connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use plimsoll_core::exchange::PeerId;
use plimsoll_core::exchange::authority::{self, NotAllowed};
use plimsoll_core::report::Identity;
use plimsoll_tls::{Certificates, HandshakeFailure, accept};
use tokio::net::TcpStream;

use super::{Duplex, Watched};

/// The identities of both ends of a connection, and the end of the child's certificate.
#[derive(Clone, Debug)]
pub(crate) struct Certified {
    own: PeerId,
    pub(crate) child: PeerId,
    not_after: SystemTime,
}

pub(super) enum Socket {
    Plain(TcpStream),
    Handshake(Handshake),
    Open(Box<dyn Duplex>),
    Failed,
}

type Handshake = Pin<Box<dyn Future<Output = Result<(Box<dyn Duplex>, Certified), Failed>> + Send>>;

#[derive(Debug)]
pub(super) struct Failed {
    /// The label of its metric; `None` if the peer closed a silent connection, as load balancers do
    /// to check ports.
    pub(super) reason: Option<&'static str>,
    pub(super) cause: String,
}

impl From<HandshakeFailure> for Failed {
    fn from(failure: HandshakeFailure) -> Self {
        Self {
            reason: Some(failure.label()),
            cause: failure.to_string(),
        }
    }
}

impl Certified {
    /// Checks that the child may send such a greeting.
    pub(crate) fn check(&self, greeting: &Identity) -> Result<(), NotAllowed> {
        authority::check_child(&self.own, &self.child, greeting)
    }

    /// Returns true if the child's certificate is not valid any more.
    pub(crate) fn is_expired(&self) -> bool {
        SystemTime::now() > self.not_after
    }
}

impl Socket {
    /// Begins the handshake of a connection; without certificates it is plaintext.
    pub(super) fn new(stream: TcpStream, certificates: Option<&Certificates>) -> Self {
        match certificates {
            None => Self::Plain(stream),
            Some(certificates) => {
                let (config, own) = (certificates.mutual_server(), certificates.id());
                Self::Handshake(Box::pin(async {
                    if matches!(stream.peek(&mut [0]).await, Ok(0)) {
                        return Err(Failed {
                            reason: None,
                            cause: "the peer sent nothing".to_owned(),
                        });
                    }
                    let (stream, peer) = accept(config, stream).await?;
                    let kind = stream.get_ref().1.handshake_kind();
                    tracing::debug!(child = %peer.id, ?kind, "handshake is over");
                    let stream: Box<dyn Duplex> = Box::new(Watched::new(stream));
                    Ok((
                        stream,
                        Certified {
                            own,
                            child: peer.id,
                            not_after: peer.not_after,
                        },
                    ))
                }))
            }
        }
    }

    /// Continues the handshake, if one is under way. Returns the certificates once, when it ends.
    pub(super) fn poll_handshake(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Certified>, Failed>> {
        let Self::Handshake(handshake) = self else {
            return Poll::Ready(Ok(None));
        };
        let result = ready!(handshake.as_mut().poll(context));
        *self = Self::Failed;
        Poll::Ready(result.map(|(stream, certified)| {
            *self = Self::Open(stream);
            Some(certified)
        }))
    }

    /// Returns the bytes. Fails before the end of the handshake, and after its failure.
    pub(super) fn bytes(&mut self) -> io::Result<Pin<&mut dyn Duplex>> {
        match self {
            Self::Plain(stream) => Ok(Pin::new(stream)),
            Self::Open(stream) => Ok(Pin::new(&mut **stream)),
            Self::Handshake(_) | Self::Failed => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    pub(super) const fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }
}
