//! What was decided, by key: cumulative, never reset, behind an interface small enough to be replaced whole.

use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_core::report::Counts;

/// How a decision ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Admitted,
    Dropped,
    WouldDropped,
}

/// One set of counts for each key.
#[derive(Debug)]
pub(crate) struct Counters {
    cells: Box<[Cell]>,
}

/// The outcomes exclude each other, so that one decision is one addition; what was offered is their sum.
#[derive(Debug, Default)]
struct Cell {
    admitted: AtomicU64,
    dropped: AtomicU64,
    would_dropped: AtomicU64,
}

impl Counters {
    pub(crate) fn new(keys_max: usize) -> Self {
        Self { cells: (0..keys_max).map(|_| Cell::default()).collect() }
    }

    /// Counts one decision.
    #[inline]
    pub(crate) fn add(&self, key: u32, outcome: Outcome) {
        if let Some(cell) = self.cells.get(key as usize) {
            let counter = match outcome {
                Outcome::Admitted => &cell.admitted,
                Outcome::Dropped => &cell.dropped,
                Outcome::WouldDropped => &cell.would_dropped,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Everything counted for a key so far.
    pub(crate) fn read(&self, key: u32) -> Counts {
        let Some(cell) = self.cells.get(key as usize) else { return Counts::ZERO };
        let dropped = cell.dropped.load(Ordering::Relaxed);
        let would_dropped = cell.would_dropped.load(Ordering::Relaxed);
        let offered = cell.admitted.load(Ordering::Relaxed) + dropped + would_dropped;
        Counts { offered, dropped, would_dropped, ..Counts::ZERO }
    }
}
