//! The handle of a feed that runs, and the result of its end.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Control, Flushed};

/// The handle of a feed that runs. Made by [`LimiterBuilder::build`](crate::LimiterBuilder::build).
///
/// Dropping it does not stop the feed: a limiter with a stopped feed would decide by its last
/// directives forever. It is logged as a warning, because without [`shutdown`](Self::shutdown) the
/// decisions of the last moments are not reported when the process ends.
#[derive(Debug)]
#[must_use = "call shutdown() before the process ends, so that the last counts are reported"]
pub struct FeedHandle {
    pub(super) control: Arc<Control>,
    pub(super) shutdown: CancellationToken,
    /// `None` once the feed is shut down, or if it had nothing to do and there was no runtime.
    pub(super) task: Option<JoinHandle<Flushed>>,
}

impl FeedHandle {
    /// Stops the feed: sends each aggregator a last report, and waits until it is acknowledged, for a moment at most.
    /// Returns the decisions that no aggregator has acknowledged.
    pub async fn shutdown(mut self) -> Flushed {
        if let Some(task) = self.task.take() {
            self.shutdown.cancel();
            // A feed without work has ended long before: the decisions since then count as well.
            let _ = task.await;
        }
        Flushed {
            unreported: self.control.unreported(),
        }
    }
}

impl Drop for FeedHandle {
    fn drop(&mut self) {
        if self.task.as_ref().is_some_and(|task| !task.is_finished()) {
            let unreported = self.control.unreported();
            tracing::warn!(
                unreported,
                "feed handle dropped without a shutdown: the feed runs on, and the decisions of its last moments are not \
                 reported; keep the handle of LimiterBuilder::build and call FeedHandle::shutdown before the process ends"
            );
        }
    }
}
