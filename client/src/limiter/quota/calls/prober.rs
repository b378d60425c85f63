//! The background task that asks a store which does not answer, until it does.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::timeout;

use super::{Shared, jitter};
use crate::limiter::quota::store::{Ask, CONNECT_MAX};

/// The task that waits for a store to answer again. Dropped with its runtime, it lets another begin.
#[derive(Debug)]
pub(super) struct Prober {
    shared: Arc<Shared>,
    at: usize,
    ask: Ask,
    /// The error that is in the log.
    logged: Option<String>,
}

impl Prober {
    pub(super) const fn new(shared: Arc<Shared>, at: usize, ask: Ask, logged: Option<String>) -> Self {
        Self { shared, at, ask, logged }
    }

    /// Probes until the store answers.
    pub(super) async fn run(self) {
        let Some(part) = self.shared.parts.get(self.at) else { return };
        let mut logged = self.logged.clone();
        loop {
            let wait = part.lock().probe_in(self.shared.now());
            let Some(wait) = wait else { return };
            if Arc::strong_count(&self.shared) == 1 {
                return;
            }
            tokio::time::sleep(wait).await;
            if !part.lock().probe(self.shared.now()) {
                continue;
            }
            let is_answered = self.is_answered().await;
            part.lock().probed(is_answered, self.shared.now(), jitter());
            if is_answered {
                self.shared.parts_open.fetch_sub(1, Ordering::Relaxed);
                tracing::info!(store = self.shared.name, "quota store answers again");
                self.shared.give_waiting();
                return;
            }
            let cause = self.shared.store.fault().filter(|cause| logged.as_ref() != Some(cause));
            if let Some(cause) = cause {
                tracing::warn!(store = self.shared.name, cause, "quota store still does not answer");
                logged = Some(cause);
            }
            // Connections of a cluster serve its other nodes, unless none answers.
            if self.shared.parts_open.load(Ordering::Relaxed) == self.shared.parts.len() {
                self.shared.store.disconnect();
            }
        }
    }

    /// Returns true if the store answers within the deadline of requests, once it is connected.
    async fn is_answered(&self) -> bool {
        let store = &self.shared.store;
        let connected = async {
            store.connect().await?;
            store.probe(&self.ask).await
        };
        if !matches!(timeout(CONNECT_MAX * 2, connected).await, Ok(Ok(()))) {
            return false;
        }
        matches!(timeout(self.shared.timeout, store.probe(&self.ask)).await, Ok(Ok(())))
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        if let Some(part) = self.shared.parts.get(self.at) {
            part.lock().probed(false, self.shared.now(), 0);
            part.is_probing.store(false, Ordering::Release);
        }
    }
}
