//! The lag of the process: how often a busy host delays it. Proxies do not wait for a late sidecar,
//! and let their requests pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Delay that counts as late: the minimum that a shipped configuration of a proxy waits.
const LATE_FROM: Duration = Duration::from_millis(20);

/// Counts of checks of the clock. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lag {
    in_time: Arc<AtomicU64>,
    late: Arc<AtomicU64>,
}

impl Lag {
    pub(crate) async fn watch(self) {
        let mut due = Instant::now();
        loop {
            due += LOOK_EVERY;
            sleep_until(due).await;
            due += self.on_look(due.elapsed());
        }
    }

    /// Counts a check that ran `late` by this time, and the checks that were due meanwhile, which it replaces. Returns
    /// the total time of the latter.
    fn on_look(&self, late: Duration) -> Duration {
        let replaced = u32::try_from(late.as_millis() / LOOK_EVERY.as_millis()).unwrap_or(u32::MAX);
        match late < LATE_FROM {
            true => self.in_time.fetch_add(1, Ordering::Relaxed),
            false => self
                .late
                .fetch_add(1 + u64::from(replaced), Ordering::Relaxed),
        };
        LOOK_EVERY * replaced
    }

    pub(crate) fn counts(&self) -> [(&'static str, u64); 2] {
        [("false", &self.in_time), ("true", &self.late)]
            .map(|(late, count)| (late, count.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_counts_as_looks_that_were_due() {
        let lag = Lag::default();
        for (late_ms, skipped_ms) in [
            (0, 0),
            (19, 0),
            (20, 0),
            (99, 0),
            (100, 100),
            (1_050, 1_000),
        ] {
            assert_eq!(
                lag.on_look(Duration::from_millis(late_ms)),
                Duration::from_millis(skipped_ms)
            );
        }
        assert_eq!(lag.counts(), [("false", 2), ("true", 1 + 1 + 2 + 11)]);
    }
}
