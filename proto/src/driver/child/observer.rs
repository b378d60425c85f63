//! Events of a child's streams, for logs and metrics.

use std::error::Error;

use tonic::Status;

use super::PARENT_SILENT;
use crate::DecodeError;

/// Observer of a child's streams.
pub trait Observer: Send + 'static {
    /// Called at the first message of the parent on a new stream.
    fn on_connected(&mut self);
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
    #[error("no message from the parent for {PARENT_SILENT:?}")]
    Silent,
    /// A message is out of range.
    #[error("a message of the parent is out of range: {0}")]
    Decode(#[from] DecodeError),
}

/// Returns the cause of a status, or its message if it has none.
fn status_cause(status: &Status) -> String {
    status.source().map_or_else(|| status.message().to_owned(), root_cause)
}

/// Returns the innermost error: "connection refused" helps an operator more than "transport error".
fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
