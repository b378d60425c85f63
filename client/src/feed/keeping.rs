//! Keeps the directives on disk up to date while the feed runs, without ever waiting for the disk.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Feed;
use crate::keepsake::KeepError;

/// How often directives are written, if anything has changed: ratios move all the time, and after a restart what they
/// were a few seconds before serves as well.
const KEEP_EVERY: Duration = Duration::from_secs(5);
/// How long an orderly stop waits for the disk.
const LAST: Duration = Duration::from_secs(2);

impl Feed {
    /// Writes what holds whenever it has changed. Never ends.
    pub(super) async fn keep(&self) {
        let mut ticks = interval(KEEP_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick comes at once, when there is nothing new.
        ticks.tick().await;
        loop {
            ticks.tick().await;
            self.keep_news().await;
        }
    }

    /// Writes what holds at the end.
    pub(super) async fn keep_last(&self) {
        let _ = timeout(LAST, self.keep_news()).await;
    }

    async fn keep_news(&self) {
        let Some(keepsake) = self.keepsake.clone() else { return };
        let Some((version, kept)) = self.subscription.with(|subscription, _| subscription.news_to_keep())
        else {
            return;
        };
        let written = spawn_blocking(move || keepsake.write(kept)).await;
        match written {
            Ok(Ok(())) => self.subscription.with(|subscription, _| subscription.on_kept(version)),
            Ok(Err(error)) => self.on_failure(&error),
            // The runtime ends, and takes what it was doing with it.
            Err(_) => {}
        }
    }

    fn on_failure(&self, error: &KeepError) {
        if self.health.keep_failures.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(%error, "the directives cannot be kept; nothing else depends on it, and it is not said again");
        } else {
            tracing::debug!(%error, "the directives still cannot be kept");
        }
    }
}
