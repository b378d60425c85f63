//! The cache writer: saves directives while the feed runs. Decisions never wait for the disk.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_core::directive::Epoch;
use plimsoll_proto::shared::Shared;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::{CacheFile, Snapshot};

/// The interval between saves while anything changes. Ratios change all the time, and after a restart those
/// of a few seconds before serve as well.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);
/// The interval at which the kill generations are checked. A change of them is saved at once: a decision made
/// before it must not come back with the next process.
const KILL_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// The longest time that an orderly stop waits for the disk.
const LAST_SAVE_MAX: Duration = Duration::from_secs(2);

/// The version of a state that can be saved: another one after any change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    /// The version of the directives in force.
    pub(crate) directives: u64,
    pub(crate) epoch: Option<Epoch>,
    /// The version of the kill generations.
    pub(crate) kills: u64,
}

/// The state that is saved.
pub(crate) trait Source {
    /// Returns the present state and its version; `None` if it is saved already.
    fn unsaved(&self) -> Option<(Version, Snapshot)>;

    /// Returns the version of the kill generations; `None` if it is saved already.
    fn unsaved_kills(&self) -> Option<u64>;

    /// Records that the state of this version is saved.
    fn on_saved(&mut self, version: Version);
}

/// Saves the state of `source` in a file.
#[derive(Debug)]
pub(crate) struct CacheWriter<'a, S> {
    pub(crate) file: &'a CacheFile,
    pub(crate) source: &'a Shared<S>,
    /// Counts the saves that failed.
    pub(crate) failures: &'a AtomicU64,
}

impl<S: Source> CacheWriter<'_, S> {
    /// Saves the state whenever it has changed. Never ends.
    pub(crate) async fn run(&self) {
        let mut ticks = interval(KILL_CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut saved_at, mut tried) = (Instant::now(), None);
        loop {
            ticks.tick().await;
            let kills = self.source.with(|source, _| source.unsaved_kills());
            // Kill generations that could not be saved are tried again with the next regular save.
            if saved_at.elapsed() >= SAVE_INTERVAL || kills.is_some() && kills != tried {
                (saved_at, tried) = (Instant::now(), kills);
                self.save().await;
            }
        }
    }

    /// Saves the state at the end of the process, if the disk is fast enough.
    pub(crate) async fn save_last(&self) {
        let _ = timeout(LAST_SAVE_MAX, self.save()).await;
    }

    async fn save(&self) {
        let Some((version, snapshot)) = self.source.with(|source, _| source.unsaved()) else { return };
        let file = self.file.clone();
        match spawn_blocking(move || file.write(snapshot)).await {
            Ok(Ok(())) => self.source.with(|source, _| source.on_saved(version)),
            Ok(Err(error)) if self.failures.fetch_add(1, Ordering::Relaxed) == 0 => {
                tracing::warn!(%error, "directive cache not written; later failures are logged at debug level");
            }
            Ok(Err(error)) => tracing::debug!(%error, "directive cache not written"),
            // The runtime is shutting down.
            Err(_) => {}
        }
    }
}
