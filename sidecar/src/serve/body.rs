//! Bodies of requests, read whole within a bound on their size and a deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::timeout;

/// The longest time from the head of a request to the end of its body.
const BODY_MAX: Duration = Duration::from_secs(10);

/// The most bytes of bodies that have begun and not ended, of all requests of one connection over HTTP/2.
const UNFINISHED_BYTES_MAX: usize = 128 * 1024;

tokio::task_local! {
    /// Set for the requests of a connection that carries many at once.
    static UNFINISHED: Unfinished;
}

/// The bytes of bodies of one connection that have begun and not ended. Clones share them. Without a bound on their sum a
/// peer could let each of its streams hold nearly a whole body.
#[derive(Clone, Debug, Default)]
pub(super) struct Unfinished(Arc<AtomicUsize>);

/// A part of an unfinished body, given back when it is dropped.
struct Held {
    of: Option<Unfinished>,
    bytes: usize,
}

/// The reason why a body was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// It is larger than allowed.
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    /// Too much of other bodies of the connection waits for its end.
    #[error("bodies of the connection have begun with more than {UNFINISHED_BYTES_MAX} bytes and not ended")]
    TooManyBegun,
    /// It did not end in time.
    #[error("the body did not end within {} s", BODY_MAX.as_secs())]
    TooSlow,
    /// The caller broke it off.
    #[error("the body broke off: {0}")]
    Broken(#[from] hyper::Error),
}

/// Reads a body of at most `max` bytes. One that came in one piece is not copied.
///
/// # Errors
/// When the body is larger, does not end within its deadline, or breaks off.
pub(crate) async fn read_within(body: Incoming, max: usize) -> Result<Bytes, BodyError> {
    // The length may be announced.
    if body.size_hint().lower() > max as u64 {
        return Err(BodyError::TooLarge(max));
    }
    timeout(BODY_MAX, read(body, max)).await.unwrap_or(Err(BodyError::TooSlow))
}

async fn read(mut body: Incoming, max: usize) -> Result<Bytes, BodyError> {
    let mut read = BytesMut::new();
    let mut held = Held { of: UNFINISHED.try_with(Unfinished::clone).ok(), bytes: 0 };
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
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
        held.add(data.len())?;
    }
    Ok(read.freeze())
}

impl Unfinished {
    /// Counts the bodies that `request` reads among those of this connection.
    pub(super) fn scope<F: Future>(&self, request: F) -> impl Future<Output = F::Output> + use<F> {
        UNFINISHED.scope(self.clone(), request)
    }
}

impl Held {
    fn add(&mut self, bytes: usize) -> Result<(), BodyError> {
        let Some(Unfinished(all)) = &self.of else { return Ok(()) };
        self.bytes += bytes;
        let before = all.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > UNFINISHED_BYTES_MAX { Err(BodyError::TooManyBegun) } else { Ok(()) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(Unfinished(all)) = &self.of {
            all.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}
