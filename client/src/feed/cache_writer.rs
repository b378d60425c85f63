//! The cache writer: saves directives while the feed runs. Decisions never wait for the disk.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::Control;

/// The interval between saves while anything changes. Ratios change all the time, and after a restart those
/// of a few seconds before serve as well.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);
/// The interval at which the kill generations are checked. A change is saved immediately: the next
/// process must not return to a decision made before it.
const KILL_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum time that an orderly stop waits for the disk.
const LAST_SAVE_MAX: Duration = Duration::from_secs(2);

impl Control {
    pub(super) async fn follow_cache(&self) {
        let mut ticks = interval(KILL_CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut saved_at, mut tried) = (Instant::now(), None);
        while self.cache.is_some() {
            ticks.tick().await;
            let kills = self
                .subscription
                .with(|subscription, _| subscription.unsaved_kills());
            // Kill generations that could not be saved are tried again with the next regular save.
            if saved_at.elapsed() >= SAVE_INTERVAL || kills.is_some() && kills != tried {
                (saved_at, tried) = (Instant::now(), kills);
                self.save().await;
            }
        }
        std::future::pending().await
    }

    pub(super) async fn save_last(&self) {
        let _ = timeout(LAST_SAVE_MAX, self.save()).await;
    }

    async fn save(&self) {
        let Some(file) = self.cache.clone() else {
            return;
        };
        let unsaved = self
            .subscription
            .with(|subscription, _| subscription.unsaved());
        let Some((version, snapshot)) = unsaved else {
            return;
        };
        let path = file.path.clone();
        match spawn_blocking(move || file.write(snapshot)).await {
            Ok(Ok(())) => self
                .subscription
                .with(|subscription, _| subscription.directives.saved = version),
            Ok(Err(error)) if self.counters.save_failures.fetch_add(1, Ordering::Relaxed) == 0 => {
                let path = path.display();
                tracing::warn!(%path, %error, "directive cache not written; later failures are logged at debug level");
            }
            Ok(Err(error)) => tracing::debug!(%error, "directive cache not written"),
            // The runtime is shutting down.
            Err(_) => {}
        }
    }
}
