//! Keeps the directives on disk up to date while the feed runs, without ever waiting for the disk.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::file::KeepError;
use crate::feed::Feed;

/// How often directives are written, if anything has changed: ratios move all the time, and after a restart what they
/// were a few seconds before serves as well.
const KEEP_EVERY: Duration = Duration::from_secs(5);
/// How often it is looked at whether anything was killed, or is no longer: what was decided before that must not come back
/// with the next process, so it is written at once.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long an orderly stop waits for the disk.
const LAST: Duration = Duration::from_secs(2);

impl Feed {
    /// Writes what holds whenever it has changed. Never ends.
    pub(crate) async fn keep(&self) {
        if self.keepsake.is_none() {
            return std::future::pending().await;
        }
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut kept_at, mut tried) = (Instant::now(), None);
        loop {
            ticks.tick().await;
            let turned = self.subscription.with(|subscription, _| subscription.kills_to_keep());
            // Where it cannot be written it is tried again with everything else.
            if kept_at.elapsed() >= KEEP_EVERY || turned.is_some() && turned != tried {
                (kept_at, tried) = (Instant::now(), turned);
                self.keep_news().await;
            }
        }
    }

    /// Writes what holds at the end.
    pub(crate) async fn keep_last(&self) {
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
