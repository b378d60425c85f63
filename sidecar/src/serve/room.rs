//! One bound on the memory of requests in progress, on all connections of a process. A connection
//! leaves several times its own part free, so that greedy connections cannot keep the others out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Response, StatusCode};

/// Maximum bytes of requests in progress, on all connections of all ports.
const OPEN_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes of a request in addition to its body: its head, its stream and its task.
const REQUEST_BYTES: usize = 8 * 1024;

/// A connection leaves at least this many times its own part free.
const LEFT: usize = 6;

tokio::task_local! {
    static OPEN: Open;
}

/// Bytes of the requests in progress. Clones share the count.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    max: usize,
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

    /// Answers a request that has begun, or refuses it if its connection has no room.
    pub(super) fn answer<F, B>(
        &self,
        answer: F,
    ) -> impl Future<Output = Response<B>> + Send + use<F, B>
    where
        F: Future<Output = Response<B>> + Send,
        B: Default,
    {
        let open = self.open();
        // A refused request takes no more than this pointer.
        let answer = open
            .add(REQUEST_BYTES)
            .then(|| Box::pin(OPEN.scope(open, answer)));
        async {
            match answer {
                Some(answer) => answer.await,
                None => {
                    let mut busy = Response::new(B::default());
                    *busy.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                    busy
                }
            }
        }
    }
}

impl Open {
    pub(super) fn clear(&self) {
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        for used in [&self.share.used, &self.share.room.used] {
            used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Counts these bytes, also if the connection has no room for them. Then returns false: the request must end.
    pub(super) fn add(&self, bytes: usize) -> bool {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let own = self.share.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let all = self.share.room.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // Each connection may have one request.
        let left_to_others = if own > REQUEST_BYTES { own * LEFT } else { 0 };
        all + left_to_others <= self.share.room.max
    }
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
