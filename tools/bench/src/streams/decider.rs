//! A thread that decides requests without pause, to show that no decision blocks it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use plimsoll_client::{BucketHandle, Limiter, Request};
use tokio_util::sync::CancellationToken;

use super::{controller, process};

/// Decisions per bucket between two pauses, and length of a pause.
const DECISIONS_PER_TURN: u64 = 1_000;
const PAUSE: Duration = Duration::from_millis(5);

pub(super) struct Decider {
    decided: Arc<AtomicU64>,
    waited: Arc<AtomicU64>,
}

impl Decider {
    /// Starts the thread. It ends when `stop` is cancelled.
    pub(super) fn start(
        buckets: Vec<(Limiter, BucketHandle)>,
        stop: CancellationToken,
    ) -> anyhow::Result<Self> {
        let (decided, waited) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let decider = Self {
            decided: Arc::clone(&decided),
            waited: Arc::clone(&waited),
        };
        let tenant = controller::tenant(0);
        thread::Builder::new()
            .name("decider".to_owned())
            .spawn(move || {
                while !stop.is_cancelled() {
                    let before = process::waits_of_this_thread();
                    for (limiter, bucket) in &buckets {
                        (0..DECISIONS_PER_TURN).for_each(|_| {
                            let _ = limiter.check(&Request::new(bucket, &tenant));
                        });
                    }
                    waited.fetch_add(process::waits_of_this_thread() - before, Ordering::Relaxed);
                    decided.fetch_add(DECISIONS_PER_TURN * buckets.len() as u64, Ordering::Relaxed);
                    thread::sleep(PAUSE);
                }
            })?;
        Ok(decider)
    }

    /// Number of decisions, and number of decisions that made the thread wait.
    pub(super) fn figures(&self) -> (u64, u64) {
        (
            self.decided.load(Ordering::Relaxed),
            self.waited.load(Ordering::Relaxed),
        )
    }
}
