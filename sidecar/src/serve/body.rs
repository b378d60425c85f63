//! Bodies of requests, read completely within a bound on their size and a deadline.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::timeout;

use super::room;

/// Maximum time of a body.
const BODY_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    /// The connection's requests in progress use all of its room.
    #[error("too many requests are in progress")]
    NoRoom,
    #[error("the body did not end within {} s", BODY_MAX.as_secs())]
    TooSlow,
    #[error("the body broke off: {0}")]
    Broken(#[from] hyper::Error),
}

/// Reads a body of at most `max` bytes. A body in one piece is not copied.
///
/// # Errors
/// When the body is larger, does not end within its deadline, or breaks off, or its connection has no
/// room for it.
pub(crate) async fn read_within(body: Incoming, max: usize) -> Result<Bytes, BodyError> {
    // The length may be announced.
    if body.size_hint().lower() > max as u64 {
        return Err(BodyError::TooLarge(max));
    }
    timeout(BODY_MAX, read(body, max))
        .await
        .unwrap_or(Err(BodyError::TooSlow))
}

async fn read(mut body: Incoming, max: usize) -> Result<Bytes, BodyError> {
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        if read.len() + data.len() > max {
            return Err(BodyError::TooLarge(max));
        }
        if body.is_end_stream() && read.is_empty() {
            return Ok(data);
        }
        read.extend_from_slice(&data);
        if body.is_end_stream() {
            break;
        }
        if !room::hold(data.len()) {
            return Err(BodyError::NoRoom);
        }
    }
    Ok(read.freeze())
}
