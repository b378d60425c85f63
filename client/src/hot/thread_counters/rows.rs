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

/// The row of the current thread, or the one that threads without a slot share.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    words: &'a [AtomicU64],
    first: usize,
    is_shared: bool,
}

impl Row<'_> {
    #[inline]
    pub(crate) fn add(self, at: usize, n: u64) {
        if let Some(counter) = self.words.get(self.first + at) {
            sync::add(counter, n, self.is_shared);
        }
    }

    /// Sets bits of a counter that is a set of them.
    #[inline]
    pub(crate) fn set(self, at: usize, bits: u64) {
        let Some(word) = self.words.get(self.first + at) else {
            return;
        };
        if word.load(Ordering::Relaxed) & bits != bits {
            word.fetch_or(bits, Ordering::Relaxed);
        }
    }
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
    pub(crate) fn of_current_thread(&self) -> Row<'_> {
        let slot = slots::current(self.slots);
        Row {
            words: &self.words,
            first: slot.unwrap_or(self.slots) * (self.counters + LINE),
            is_shared: slot.is_none(),
        }
    }

    #[inline]
    pub(crate) fn add(&self, at: usize) {
        debug_assert!(at < self.counters, "a counter of the row");
        self.of_current_thread().add(at, 1);
    }

    /// Returns a counter of each thread. Rows that no thread has used are left out: reading them would take memory.
    pub(crate) fn each(&self, at: usize) -> impl Iterator<Item = u64> {
        let used = slots::high_watermark().min(self.slots);
        let rows = (0..used).chain([self.slots]);
        rows.filter_map(move |row| self.words.get(row * (self.counters + LINE) + at))
            .map(|counter| counter.load(Ordering::Relaxed))
    }

    pub(crate) fn total(&self, at: usize) -> u64 {
        self.each(at).sum()
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
