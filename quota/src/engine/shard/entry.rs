//! One bucket in memory.

use crate::store::{Kind, Row, State};

#[derive(Debug)]
pub(in crate::engine) struct Entry {
    /// Key in the store; empty for a free slot.
    pub(in crate::engine) key: Box<[u8]>,
    pub(super) hash: u64,
    /// `None` for a full bucket without a row.
    pub(in crate::engine) state: Option<State>,
    /// Server's clock minus the caller's time at the last change, in milliseconds.
    skew_ms: i64,
    /// Number of the commit that saves its last change, perhaps the next one; 0 for none.
    pub(super) commit: u64,
    /// Number of the last commit that was given its row, on disk or not yet; 0 for none.
    pub(super) logged: u64,
    /// Operations and refusals, as counts that halve each minute.
    asked: u32,
    refused: u32,
    minute: u16,
    /// True if it was used since the eviction hand last passed it.
    pub(super) is_used: bool,
    pub(super) settled: Settled,
}

/// Whether the bucket's row in the store has its last change. Only then it can be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    Yes,
    UnderWay,
    No,
}

impl Entry {
    pub(super) fn new(key: &[u8], hash: u64, state: Option<State>) -> Self {
        Self {
            key: key.into(),
            hash,
            state,
            skew_ms: 0,
            commit: 0,
            logged: 0,
            asked: 0,
            refused: 0,
            minute: 0,
            is_used: true,
            settled: Settled::Yes,
        }
    }

    /// Marks the bucket to be settled, and adds its slot to the list `unsettled` unless it is marked.
    pub(super) fn want_settled(&mut self, slot: u32, unsettled: &mut Vec<u32>) {
        if self.settled != Settled::No {
            self.settled = Settled::No;
            unsettled.push(slot);
        }
    }

    pub(super) fn is_free(&self) -> bool {
        self.key.is_empty()
    }

    pub(in crate::engine) fn count(&mut self, minute: u16, is_refused: bool) {
        self.is_used = true;
        if self.minute != minute {
            (self.asked, self.refused) = self.counts(minute);
            self.minute = minute;
        }
        self.asked = self.asked.saturating_add(1);
        self.refused = self.refused.saturating_add(u32::from(is_refused));
    }

    /// Returns the operations and the refusals, as they have faded by `minute`.
    pub(in crate::engine) fn counts(&self, minute: u16) -> (u32, u32) {
        let minutes = u32::from(minute.wrapping_sub(self.minute));
        let faded = |count: u32| count.checked_shr(minutes).unwrap_or(0);
        (faded(self.asked), faded(self.refused))
    }

    /// Sets the state after a change at `at_ms` by the caller's clock, `now_ms` by the server's.
    pub(in crate::engine) fn set(&mut self, state: Option<State>, at_ms: u64, now_ms: u64) {
        self.state = state;
        self.skew_ms = now_ms.wrapping_sub(at_ms).cast_signed();
    }

    pub(super) fn row(&self) -> Option<Row> {
        self.state.map(|state| Row {
            state,
            full_at_ms: self.full_at_ms(),
        })
    }

    /// Returns the time by the server's clock when the bucket is full, if the caller's clock runs
    /// at the same speed.
    fn full_at_ms(&self) -> u64 {
        match (self.state, Kind::parse(&self.key)) {
            (Some(State::Tokens(balance)), Some((_, Kind::Tokens(rate)))) => {
                let full = balance.holds_at_ms(rate, rate.max()).unwrap_or(u64::MAX);
                let full = i128::from(full) + i128::from(self.skew_ms);
                u64::try_from(full.max(0)).unwrap_or(u64::MAX)
            }
            (Some(State::Throttle(gcra)), _) => gcra.arrival_ns.div_ceil(1_000_000),
            _ => u64::MAX,
        }
    }
}
