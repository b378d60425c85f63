//! The gate of events: refusals of a bucket are logged once in a while, with the number of refusals
//! in between.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The least time between two events about one bucket: an overload of an hour leaves a log that can be read.
const EVENT_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct EventGate {
    /// The time of the next event in ns. Read with every refusal, written with every event.
    due: AtomicU64,
    /// The refusals up to the last event.
    logged: AtomicU64,
}

impl EventGate {
    /// Returns the refusals since the last event, except for one, if an event is due. `refusals` returns all refusals
    /// so far; it is called only for an event.
    #[inline]
    pub(super) fn pass(
        &self,
        now: Duration,
        refusals: impl FnOnce() -> Option<u64>,
    ) -> Option<u64> {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let due = self.due.load(Ordering::Relaxed);
        if now < due {
            return None;
        }
        let next = now.saturating_add(EVENT_EVERY.as_nanos() as u64);
        // Of the threads that refuse together, one logs.
        self.due
            .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
            .ok()?;
        let all = refusals()?;
        let logged = self.logged.swap(all, Ordering::Relaxed);
        Some(all.saturating_sub(logged).saturating_sub(1))
    }
}
