//! Counters in a row for each thread, so that threads that serve requests never write to one cache line.

use crate::hot::sync::{self, AtomicU64, Ordering, zeroed};
use crate::hot::thread_counters::slots;

/// Words of a cache line: the gap between rows, whatever the alignment of the first.
const LINE: usize = 8;

#[derive(Debug)]
pub(crate) struct Rows {
    words: Vec<AtomicU64>,
    slots: usize,
    counters: usize,
}

impl Rows {
    /// Makes rows for `slots` threads at a time, and one that further threads share.
    pub(crate) fn new(slots: usize, counters: usize) -> Self {
        Self {
            words: zeroed((slots + 1) * (counters + LINE)),
            slots,
            counters,
        }
    }

    pub(crate) const fn slots(&self) -> usize {
        self.slots
    }

    #[inline]
    pub(crate) fn add(&self, at: usize) {
        debug_assert!(at < self.counters, "a counter of the row");
        let slot = slots::current(self.slots);
        let row = slot.unwrap_or(self.slots) * (self.counters + LINE);
        if let Some(counter) = self.words.get(row + at) {
            sync::add(counter, 1, slot.is_none());
        }
    }

    pub(crate) fn total(&self, at: usize) -> u64 {
        let rows = self.words.chunks(self.counters + LINE);
        rows.filter_map(|row| Some(row.get(at)?.load(Ordering::Relaxed)))
            .sum()
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    #[test]
    fn counters_sum_even_without_a_slot() {
        for (slots, counters) in [(0, 1), (1, 7), (64, 8), (64, 9)] {
            let rows = Rows::new(slots, counters);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        (0..1_000).for_each(|_| rows.add(0));
                        rows.add(counters - 1);
                    });
                }
            });
            let totals: Vec<u64> = (0..counters).map(|at| rows.total(at)).collect();
            let mut expected = vec![0; counters];
            expected[0] += 4_000;
            expected[counters - 1] += 4;
            assert_eq!(totals, expected, "{slots} slots");
        }
    }
}
