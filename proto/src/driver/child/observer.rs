//! Events of a child's streams, for logs and metrics.

use std::error::Error;
use std::io;
use std::time::Duration;

use plimsoll_core::exchange::authority::NotAllowed;
use tonic::{Code, Status};

use crate::DecodeError;
use crate::driver::{LEADER_METADATA, RETRY_METADATA, root_cause, status_cause};

/// Observer of a child's streams.
pub trait Observer: Send + 'static {
    /// Names the parent that the next calls are about, by its host and port.
    fn on_parent(&mut self, authority: &str) {
        let _ = authority;
    }
    /// Called at the first message of the parent on a new stream that continues no other. `zone` is the
    /// parent's zone; `None` for a controller, which has none.
    fn on_connected(&mut self, zone: Option<&str>);
    /// Called when another stream, which was opened with a renewed certificate or to a later leader, has continued the
    /// one before.
    fn on_renewed(&mut self) {}
    /// Called when a stream ended, or could not be opened. `was_connected` is true if the parent had sent a message.
    fn on_disconnected(&mut self, error: &StreamError, was_connected: bool);
    /// Called for stale directives. Only their kill generations and acknowledgements may have been applied.
    fn on_rejected(&mut self, error: &dyn Error) {
        let _ = error;
    }
}

/// Reason why a stream ended, or could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The connection attempt failed.
    #[error("cannot connect to the parent: {}", root_cause(.0))]
    Connect(#[from] io::Error),
    /// The handshake failed, at this end or at the parent's.
    #[cfg(feature = "tls")]
    #[error("cannot connect to the parent: {0}")]
    Handshake(#[from] plimsoll_tls::HandshakeFailure),
    /// The parent accepts only TLS, and the child has dialed it in plaintext.
    #[error(
        "the parent answers plaintext with TLS: write its address as https:// and give this process certificates"
    )]
    NeedsTls,
    /// The server at this address does not speak gRPC.
    #[error(
        "{authority} answers no gRPC ({}): if this is an admin port, which serves HTTP, give the port of `--listen`",
        status_cause(.status)
    )]
    NotGrpc {
        /// Host and port of the server.
        authority: String,
        /// The status that gRPC made of the answer.
        status: Box<Status>,
    },
    /// The certificates allow this child no such parent.
    #[error("the parent is refused: {0}")]
    Parent(#[from] NotAllowed),
    /// The parent closed the stream with a status.
    #[error("the parent closed the stream: {}", status_cause(.0))]
    Closed(Box<Status>),
    /// The stream ended without a status.
    #[error("the parent ended the stream without a status")]
    Ended,
    /// The parent sent nothing for too long.
    #[error("no message from the parent for {0:?}")]
    Silent(Duration),
    /// A message is out of range.
    #[error("a message of the parent is out of range: {0}")]
    Decode(#[from] DecodeError),
}

impl StreamError {
    /// Returns a label if a certificate, or the lack of one, is the cause, at this end or at the parent's.
    pub fn refusal(&self) -> Option<&'static str> {
        match self {
            #[cfg(feature = "tls")]
            // Without its own cause, the connection may just have broken.
            Self::Handshake(failure) => Some(failure.label()).filter(|label| *label != "other"),
            Self::NeedsTls => Some("needs_tls"),
            Self::Parent(_) => Some(NotAllowed::LABEL),
            Self::Closed(status) => match status.code() {
                Code::PermissionDenied => Some(NotAllowed::LABEL),
                Code::Unauthenticated => Some("expired"),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the time that a busy parent asks the child to stay away.
    pub(super) fn asked_wait(&self) -> Option<Duration> {
        let millis = self.metadata(RETRY_METADATA)?.parse().ok()?;
        Some(Duration::from_millis(millis))
    }

    /// Returns the URL of the leader, which may be empty, if the parent does not lead.
    pub(super) fn leader(&self) -> Option<&str> {
        self.metadata(LEADER_METADATA)
    }

    /// Returns true if the parent did not answer in time.
    pub(super) fn is_late(&self) -> bool {
        match self {
            Self::Silent(_) => true,
            Self::Connect(error) => error.kind() == io::ErrorKind::TimedOut,
            _ => false,
        }
    }

    fn metadata(&self, name: &str) -> Option<&str> {
        let Self::Closed(status) = self else {
            return None;
        };
        status.metadata().get(name)?.to_str().ok()
    }
}
