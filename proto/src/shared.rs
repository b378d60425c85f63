//! A state machine that several tasks talk to: the one place where a tier meets the clock.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_core::time::MonoTime;
use tokio::sync::watch;
use tokio::time::Instant;

/// A state machine behind a lock that is only ever held for pure computation, together with the clock it is fed
/// from and the bell that says it changed. Cloning gives another handle to the same one.
#[derive(Debug)]
pub struct Shared<S> {
    inner: Arc<Inner<S>>,
}

#[derive(Debug)]
struct Inner<S> {
    state: Mutex<S>,
    origin: Instant,
    bell: watch::Sender<()>,
}

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<S> Shared<S> {
    /// Takes a state machine; its clock begins now.
    #[must_use]
    pub fn new(state: S) -> Self {
        let inner = Inner { state: Mutex::new(state), origin: Instant::now(), bell: watch::Sender::new(()) };
        Self { inner: Arc::new(inner) }
    }

    /// The present on this state machine's clock.
    #[must_use]
    pub fn now(&self) -> MonoTime {
        MonoTime::from_elapsed(self.inner.origin.elapsed())
    }

    /// Runs `f` on the state machine at the present time. `f` must not block.
    pub fn with<R>(&self, f: impl FnOnce(&mut S, MonoTime) -> R) -> R {
        // A panic elsewhere leaves counts that are at worst behind; stopping all protection would be worse.
        let mut state = self.inner.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.now();
        f(&mut state, now)
    }

    /// Says that there may be something new to tell.
    pub fn ring(&self) {
        self.inner.bell.send_replace(());
    }

    /// Hears every [`ring`](Self::ring) from now on, several as one.
    #[must_use]
    pub fn bell(&self) -> watch::Receiver<()> {
        self.inner.bell.subscribe()
    }
}
