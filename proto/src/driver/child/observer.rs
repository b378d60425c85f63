//! Events of a child's streams, for logs and metrics.

use std::error::Error;
use std::time::Duration;

use tonic::Status;

use crate::DecodeError;
use crate::driver::{RETRY_METADATA, root_cause, status_cause};

/// Observer of a child's streams.
pub trait Observer: Send + 'static {
    /// Called at the first message of the parent on a new stream. `zone` is the parent's zone; `None` of a
    /// controller, which has none.
    fn on_connected(&mut self, zone: Option<&str>);
    /// Called when a stream ended (`was_connected`), or could not be opened.
    fn on_disconnected(&mut self, error: &StreamError, was_connected: bool);
    /// Called for a message that was not applied and changed nothing.
    fn on_rejected(&mut self, error: &dyn Error) {
        let _ = error;
    }
}

/// Reason why a stream ended, or could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The connection attempt failed.
    #[error("cannot connect to the parent: {}", root_cause(.0))]
    Connect(#[from] tonic::transport::Error),
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
    /// Returns the time for which the parent asked this child to stay away.
    pub(super) fn asked_wait(&self) -> Option<Duration> {
        let Self::Closed(status) = self else { return None };
        let millis = status.metadata().get(RETRY_METADATA)?.to_str().ok()?.parse().ok()?;
        Some(Duration::from_millis(millis))
    }
}
