//! A state machine that several tasks share, and the clock that gives it its time.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_core::quantity::MonoTime;
use tokio::sync::watch;
use tokio::time::Instant;

/// A state machine behind a lock, with its clock and a change notification. The lock is held for pure
/// computation only. Clones share the state machine.
#[derive(Debug)]
pub struct Shared<S> {
    inner: Arc<Inner<S>>,
}

#[derive(Debug)]
struct Inner<S> {
    state: Mutex<S>,
    origin: Instant,
    changes: watch::Sender<()>,
}

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<S> Shared<S> {
    /// Wraps a state machine and starts its clock.
    pub fn new(state: S) -> Self {
        let inner = Inner {
            state: Mutex::new(state),
            origin: Instant::now(),
            changes: watch::Sender::new(()),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Returns the current time of the state machine's clock.
    pub fn now(&self) -> MonoTime {
        MonoTime::from_elapsed(self.inner.origin.elapsed())
    }

    /// Runs `f` on the state machine at the current time. `f` must not block.
    pub fn with<R>(&self, f: impl FnOnce(&mut S, MonoTime) -> R) -> R {
        // After a panic in another task the counts may lag behind; refusing to go on would stop all load
        // shedding.
        let mut state = self
            .inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that time never goes back between calls.
        let now = self.now();
        f(&mut state, now)
    }

    /// Notifies all [`changes`](Self::changes) receivers that there may be a message to send.
    pub fn notify(&self) {
        self.inner.changes.send_replace(());
    }

    /// Returns a receiver that sees every [`notify`](Self::notify) from now on; several in a row count as
    /// one.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.inner.changes.subscribe()
    }
}
