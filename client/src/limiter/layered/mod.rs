//! Layered decisions: coin and guard first, then the exact quotas of the bucket.
//!
//! A request that the store has refused before, and that would be refused again, is refused from memory before the
//! coin. It is not offered: the law sees neither such requests nor their refusals. Every other request is decided by
//! coin and guard, and only if they admit it, the store is asked.
//!
//! In shadow mode, while killed and outside of the canary the coin decides first, a remembered refusal is only
//! counted, and otherwise the store is debited as well, because the request is served.

mod answer;
mod each;
mod exact;
mod one;
mod store;
#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests;
#[cfg(feature = "internals")]
#[allow(missing_docs)]
pub(crate) mod together;

pub(crate) use each::Each;
pub use exact::QuotaLeft;
#[cfg(any(feature = "quota", feature = "testing"))]
pub(crate) use exact::{Asked, Exact, Taking};
pub(super) use one::name_of;
pub(crate) use one::{Asking, Step, Subject};
pub(crate) use store::Store;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_core::decision::Reason;

use crate::hot::thread_counters::QuotaOutcome;

/// The refusals of one bucket by its exact quotas, in requests: refused because a quota was used up, or because the
/// store did not answer; admitted although one was used up, or although the store did not answer; refused from
/// memory, before the coin.
pub(crate) type QuotaTally = [u64; 5];

pub(crate) struct Layered {
    /// The store; unset where quotas are not enforced.
    store: OnceLock<Box<dyn Store>>,
    /// By bucket: its refusals, for metrics. The counts of keys do not tell their reasons apart.
    tallies: Box<[[AtomicU64; 5]]>,
}

impl Layered {
    pub(crate) fn new(buckets: usize) -> Self {
        Self {
            store: OnceLock::new(),
            tallies: (0..buckets).map(|_| Default::default()).collect(),
        }
    }

    pub(crate) fn set_store(&self, store: impl Store + 'static) {
        let _ = self.store.set(Box::new(store));
    }

    pub(crate) fn store(&self) -> Option<&dyn Store> {
        self.store.get().map(|store| &**store)
    }

    /// Returns true while requests are kept from a store that does not answer.
    pub(crate) fn is_store_down(&self) -> bool {
        self.store().is_some_and(|store| !store.is_up())
    }

    pub(crate) fn tally(&self, bucket: u32) -> QuotaTally {
        let counters = self.tallies.get(bucket as usize);
        counters.map_or([0; 5], |counters| {
            counters
                .each_ref()
                .map(|counter| counter.load(Ordering::Relaxed))
        })
    }

    fn count(&self, bucket: u32, outcome: QuotaOutcome, reason: Reason, n: u32) {
        let is_degraded = usize::from(reason == Reason::QuotaDegraded);
        let at = match outcome {
            QuotaOutcome::Dropped => is_degraded,
            QuotaOutcome::WouldDropped => 2 + is_degraded,
            QuotaOutcome::Repeated => 4,
        };
        if let Some(counters) = self.tallies.get(bucket as usize) {
            counters[at].fetch_add(n.into(), Ordering::Relaxed);
        }
    }
}
