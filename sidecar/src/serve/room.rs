//! One bound on the memory of requests in progress, on all connections of a process. The first request of a connection
//! is outside of it, and a connection leaves several times its part free, so that greedy ones cannot keep others out.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Response, StatusCode};
use tokio::task::futures::TaskLocalFuture;

/// Maximum bytes of requests in progress, on all connections of all ports.
const OPEN_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes of a request in addition to its body: its head, its stream and its task.
const REQUEST_BYTES: usize = 8 * 1024;
/// Bytes of each connection outside of the bound, which the bound on connections bounds: a head that arrives, and the
/// request that it begins.
const FIRST_BYTES: usize = 2 * REQUEST_BYTES;

/// A connection leaves at least this many times its own part free.
const LEFT: usize = 6;

tokio::task_local! {
    static OPEN: Open;
}

/// Bytes of the requests in progress. Clones share the count.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    max: usize,
    /// Above [`FIRST_BYTES`] of each connection.
    used: Arc<AtomicUsize>,
}

/// Part of one connection. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Share {
    room: Room,
    used: Arc<AtomicUsize>,
}

/// Bytes of one request, which count until this is dropped.
#[derive(Debug)]
pub(super) struct Open {
    share: Share,
    bytes: AtomicUsize,
}

/// The answer to a request with room; a refused one takes no more than a pointer.
pub(super) struct Answering<F>(Option<Pin<Box<TaskLocalFuture<Open, F>>>>);

impl Default for Room {
    fn default() -> Self {
        Self::of(OPEN_BYTES_MAX)
    }
}

impl Room {
    pub(super) fn of(max: usize) -> Self {
        Self {
            max,
            used: Arc::default(),
        }
    }

    pub(super) fn share(&self) -> Share {
        Share {
            room: self.clone(),
            used: Arc::default(),
        }
    }
}

impl Share {
    pub(super) fn open(&self) -> Open {
        Open {
            share: self.clone(),
            bytes: AtomicUsize::new(0),
        }
    }

    /// Begins the answer to a request, unless its connection has no room.
    pub(super) fn begin<F: Future>(&self, answer: impl FnOnce() -> F) -> Answering<F> {
        let open = self.open();
        let has_room = open.add(REQUEST_BYTES);
        Answering(has_room.then(|| Box::pin(OPEN.scope(open, answer()))))
    }
}

impl<F: Future<Output = Response<B>>, B: Default> Answering<F> {
    /// Returns the answer, or that this process is busy.
    pub(super) async fn answer(self) -> Response<B> {
        match self.0 {
            Some(answer) => answer.await,
            None => {
                let mut busy = Response::new(B::default());
                *busy.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                busy
            }
        }
    }
}

impl Open {
    pub(super) fn clear(&self) {
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        let before = self.share.used.fetch_sub(bytes, Ordering::Relaxed);
        let less = above_first(before) - above_first(before - bytes);
        self.share.room.used.fetch_sub(less, Ordering::Relaxed);
    }

    /// Counts these bytes, also if the connection has no room for them. Then returns false: the request must end.
    pub(super) fn add(&self, bytes: usize) -> bool {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let before = self.share.used.fetch_add(bytes, Ordering::Relaxed);
        let own = above_first(before + bytes);
        let more = own - above_first(before);
        let all = self.share.room.used.fetch_add(more, Ordering::Relaxed) + more;
        own == 0 || all + own * LEFT <= self.share.room.max
    }
}

fn above_first(bytes: usize) -> usize {
    bytes.saturating_sub(FIRST_BYTES)
}

impl Drop for Open {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Counts bytes of a body for the request of the current task. Returns false if its connection has
/// no room.
pub(super) fn hold(bytes: usize) -> bool {
    OPEN.try_with(|open| open.add(bytes)).unwrap_or(true)
}
