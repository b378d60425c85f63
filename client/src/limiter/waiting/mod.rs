//! Waiting for admission, for background jobs: a queue for each key of a process. The first waiter
//! asks at a pace that the control plane can follow.

mod pace;
mod queues;
#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests;
mod turn;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use plimsoll_core::quantity::MonoTime;
use tokio::time::Instant;

use crate::hot::sync::lock;
use queues::Queues;
pub(super) use turn::wait;

#[derive(Debug, Default)]
pub(crate) struct Waiting {
    queues: Mutex<Queues>,
    origin: OnceLock<Instant>,
    admitted: AtomicU64,
    timed_out: AtomicU64,
    overflowed: AtomicU64,
}

impl Waiting {
    pub(crate) fn waiters(&self) -> u64 {
        lock(&self.queues).waiters() as u64
    }

    /// Returns the requests that waited, by result: admitted, waited until their deadline, or refused immediately
    /// because there were too many waiters.
    pub(crate) fn results(&self) -> [(&'static str, u64); 3] {
        let counters = [
            ("admitted", &self.admitted),
            ("timed_out", &self.timed_out),
            ("overflowed", &self.overflowed),
        ];
        counters.map(|(result, counter)| (result, counter.load(Ordering::Relaxed)))
    }

    fn origin(&self) -> Instant {
        *self.origin.get_or_init(Instant::now)
    }

    fn now(&self) -> MonoTime {
        MonoTime::from_elapsed(Instant::now().saturating_duration_since(self.origin()))
    }
}
