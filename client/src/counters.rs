//! What was decided, by key: cumulative, never reset, behind an interface small enough to be replaced whole.

use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_core::report::Counts;

/// How a decision ended. The outcomes exclude each other, so that one decision is one addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Admitted,
    /// Refused by the coin.
    Dropped,
    /// Refused by the guard.
    GuardDropped,
    /// Admitted, though the coin would have refused.
    WouldDropped,
    /// Admitted, though the guard would have refused.
    WouldGuardDropped,
}

impl Outcome {
    const COUNT: usize = Self::WouldGuardDropped as usize + 1;
}

/// One set of counts for each key.
#[derive(Debug)]
pub(crate) struct Counters {
    cells: Box<[Cell]>,
}

/// How often each outcome came about; what was offered is their sum.
#[derive(Debug, Default)]
struct Cell([AtomicU64; Outcome::COUNT]);

impl Counters {
    pub(crate) fn new(keys_max: usize) -> Self {
        Self { cells: (0..keys_max).map(|_| Cell::default()).collect() }
    }

    /// Counts one decision.
    #[inline]
    pub(crate) fn add(&self, key: u32, outcome: Outcome) {
        if let Some(cell) = self.cells.get(key as usize) {
            cell.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Everything counted for a key so far.
    pub(crate) fn read(&self, key: u32) -> Counts {
        let Some(Cell(cell)) = self.cells.get(key as usize) else { return Counts::ZERO };
        let [admitted, dropped, guard_dropped, coin_only, would_guard_dropped] =
            cell.each_ref().map(|count| count.load(Ordering::Relaxed));
        let would_dropped = coin_only + would_guard_dropped;
        let offered = admitted + dropped + guard_dropped + would_dropped;
        Counts { offered, dropped, guard_dropped, would_dropped, would_guard_dropped }
    }
}
