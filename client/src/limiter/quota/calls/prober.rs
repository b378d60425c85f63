//! The background task that asks a store which does not answer, until it does.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::{sleep, timeout};

use super::Shared;
use crate::hot::sync::lock;

/// The task that waits for a store to answer again. Dropped with its runtime, it lets another begin.
pub(super) struct Prober {
    pub(super) shared: Arc<Shared>,
    /// The error that is in the log.
    pub(super) logged: Option<String>,
}

impl Prober {
    pub(super) async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        loop {
            // This task holds two references. Without a third, nothing uses the store.
            if Arc::strong_count(&shared) == 2 {
                return;
            }
            let jitter = getrandom::u32().unwrap_or_default();
            let wait = lock(&shared.breaker).next_wait(jitter);
            sleep(wait).await;
            if self.is_answered().await {
                lock(&shared.breaker).probed();
                shared.is_open.store(false, Ordering::Relaxed);
                tracing::info!(store = shared.name, "quota store answers again");
                shared.give_waiting();
                return;
            }
            let cause = shared
                .store
                .fault()
                .filter(|cause| self.logged.as_ref() != Some(cause));
            if let Some(cause) = cause {
                tracing::warn!(
                    store = shared.name,
                    cause,
                    "quota store still does not answer"
                );
                self.logged = Some(cause);
            }
            shared.store.disconnect().await;
        }
    }

    /// Returns true if the store answers within the deadline of requests, once it is connected.
    async fn is_answered(&self) -> bool {
        let store = &self.shared.store;
        store.greet().await.is_ok()
            && matches!(
                timeout(self.shared.timeout, store.probe()).await,
                Ok(Ok(()))
            )
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.shared.is_probing.store(false, Ordering::Release);
    }
}
