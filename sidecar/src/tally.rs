//! Counts by the values of a label, as a column of the metrics page.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct Tally<const N: usize>([(&'static str, AtomicU64); N]);

impl<const N: usize> Tally<N> {
    pub(crate) fn new(labels: [&'static str; N]) -> Self {
        Self(labels.map(|label| (label, AtomicU64::new(0))))
    }

    /// Increments the count at an index of the labels. Returns true for the first.
    pub(crate) fn add(&self, at: usize) -> bool {
        self.0
            .get(at)
            .is_some_and(|(_, count)| count.fetch_add(1, Ordering::Relaxed) == 0)
    }

    pub(crate) fn label(&self, at: usize) -> &'static str {
        self.0.get(at).map_or("", |(label, _)| label)
    }

    pub(crate) fn rows(&self) -> [(&'static str, u64); N] {
        self.0
            .each_ref()
            .map(|(label, count)| (*label, count.load(Ordering::Relaxed)))
    }
}
