//! Errors of a call: those of the client, and two of the layer.

use std::error::Error;
use std::time::Duration;

/// Error of a call through a [`Caller`](crate::Caller).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError<E> {
    /// The deadline passed before a response arrived. tonic shows it as `DEADLINE_EXCEEDED`.
    #[error("no response within {after:?}, the deadline of the call; give it more time")]
    #[non_exhaustive]
    DeadlinePassed {
        /// The time that the call had.
        after: Duration,
        /// The status in which tonic shows it; `None` without the feature `tonic`.
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// The target refused most of the last requests, so this one was not sent. tonic shows it as `UNAVAILABLE`.
    #[error("the request was not sent, as its target {target:?} refuses most; try again later")]
    #[non_exhaustive]
    Throttled {
        /// The host of the request; empty if it named none.
        target: String,
        /// The status in which tonic shows it; `None` without the feature `tonic`.
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// The client failed in the last attempt.
    #[error(transparent)]
    Client(#[from] E),
}

impl<E> CallError<E> {
    pub(crate) fn deadline_passed(after: Duration) -> Self {
        #[cfg(feature = "tonic")]
        let source = grpc(
            tonic::Code::DeadlineExceeded,
            "the deadline of the call passed",
        );
        #[cfg(not(feature = "tonic"))]
        let source = None;
        Self::DeadlinePassed { after, source }
    }

    pub(crate) fn throttled(target: String) -> Self {
        #[cfg(feature = "tonic")]
        let source = grpc(
            tonic::Code::Unavailable,
            "not sent, as the target refuses most requests",
        );
        #[cfg(not(feature = "tonic"))]
        let source = None;
        Self::Throttled { target, source }
    }
}

/// Returns the source in which tonic finds a status.
#[cfg(feature = "tonic")]
fn grpc(code: tonic::Code, message: &str) -> Option<Box<dyn Error + Send + Sync>> {
    Some(Box::new(tonic::Status::new(code, message)))
}
