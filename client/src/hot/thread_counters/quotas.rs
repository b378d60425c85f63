//! The counters of exact quotas and of retries. Few requests write to them, so all threads share one set, which is
//! allocated with the first count.

use std::sync::OnceLock;

use plimsoll_core::report::Counts;

use crate::hot::sync::{AtomicU64, Ordering, zeroed};

/// The outcome of an exact quota. The coin's own outcome is counted as well, except for a repeated
/// refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuotaOutcome {
    /// Refused by the store, after coin and guard let the request pass.
    Dropped,
    /// Admitted, because the store's refusal is not enforced. The coin and the guard let the request pass.
    WouldDropped,
    /// Refused from the memory of a refusal, before the coin: no decision is counted.
    Repeated,
}

/// The counters of one key: those of [`QuotaOutcome`], and that of retries.
type QuotaCells = [AtomicU64; 4];

const RETRIED: usize = 3;

/// The counters of all keys, allocated with the first count.
pub(crate) struct QuotaCounters {
    keys: usize,
    cells: OnceLock<Vec<QuotaCells>>,
}

impl QuotaCounters {
    pub(super) const fn new(keys: usize) -> Self {
        Self {
            keys,
            cells: OnceLock::new(),
        }
    }

    pub(crate) fn add(&self, key: u32, outcome: QuotaOutcome, n: u32) {
        self.add_to(key, outcome as usize, n);
    }

    /// Counts requests that were sent again, after their decision.
    pub(crate) fn add_retried(&self, key: u32, n: u32) {
        self.add_to(key, RETRIED, n);
    }

    fn add_to(&self, key: u32, cell: usize, n: u32) {
        let cells = self.cells.get_or_init(|| zeroed(self.keys));
        let cell = cells.get(key as usize).and_then(|cells| cells.get(cell));
        debug_assert!(cell.is_some(), "key {key} has no counters");
        if let Some(cell) = cell {
            // Released, so that a reader that sees the count also sees the decision that was counted before it.
            cell.fetch_add(n.into(), Ordering::Release);
        }
    }

    pub(super) fn counts(&self, key: u32) -> Counts {
        let Some(cells) = self.cells.get().and_then(|cells| cells.get(key as usize)) else {
            return Counts::ZERO;
        };
        let load = |cell: usize| cells[cell].load(Ordering::Acquire);
        let read = |outcome: QuotaOutcome| load(outcome as usize);
        Counts {
            quota_dropped: read(QuotaOutcome::Dropped),
            would_quota_dropped: read(QuotaOutcome::WouldDropped),
            quota_repeated: read(QuotaOutcome::Repeated),
            retried: load(RETRIED),
            ..Counts::ZERO
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;
    use crate::hot::thread_counters::{Outcome, ThreadCounters};

    #[test]
    fn quota_outcomes_have_their_own_columns() {
        let counters = ThreadCounters::new(2, 1);
        assert!(
            counters.quotas.cells.get().is_none(),
            "nothing is allocated before the first count"
        );
        counters.current_thread().add(0, Outcome::Admitted, 7);
        for (outcome, n) in [
            (QuotaOutcome::Dropped, 2),
            (QuotaOutcome::WouldDropped, 1),
            (QuotaOutcome::Repeated, 100),
        ] {
            counters.quotas.add(0, outcome, n);
        }
        counters.quotas.add_retried(0, 5);
        let due = Counts {
            offered: 7,
            retried: 5,
            quota_dropped: 2,
            would_quota_dropped: 1,
            quota_repeated: 100,
            ..Counts::ZERO
        };
        assert_eq!(
            (counters.counts(0), counters.counts(1)),
            (due, Counts::ZERO)
        );
    }

    #[test]
    fn quota_refusal_is_read_with_its_decision() {
        let counters = ThreadCounters::new(1, 2);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers = [0, 1].map(|_| {
                scope.spawn(|| {
                    for _ in 0..50_000 {
                        counters.current_thread().add(0, Outcome::Admitted, 1);
                        counters.quotas.add(0, QuotaOutcome::Dropped, 1);
                    }
                })
            });
            let reader = scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    let counts = counters.counts(0);
                    assert!(counts.is_consistent(), "{counts:?}");
                }
            });
            writers
                .into_iter()
                .for_each(|writer| writer.join().unwrap());
            done.store(true, Ordering::Release);
            reader.join().unwrap();
        });
        let counts = counters.counts(0);
        assert_eq!(
            (counts.offered, counts.quota_dropped, counts.admitted()),
            (100_000, 100_000, 0)
        );
    }
}
