//! The entries that a report adds to the parent's own tables.

use std::time::Duration;

use super::Tally;
use crate::names::{Key, KeyId, TablePlace};

/// The origin of an entry, which decides whether it describes the present rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The difference between two reports at this parent.
    Observed,
    /// Taken over from another parent's books: a number without a time.
    TakenOver,
}

/// The counts that one report added to one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct New {
    /// The new counts.
    pub delta: Tally,
    /// Their origin.
    pub origin: Origin,
}

/// The parent's own tables; the entries of a report are added one by one.
pub trait Ledger {
    /// Announces the time that the following entries cover. Called for each part of a report with a time, after its
    /// definitions.
    fn begin(&mut self, report: &Entered) {
        let _ = report;
    }

    /// Returns the place of a key, which the child calls `id` from now on; `None` if there is no room, not even in a
    /// shared place.
    fn place(&mut self, id: KeyId, key: &Key) -> Option<TablePlace>;

    /// Returns the key of a place with the names that the parent holds, so that names of many children are in
    /// memory once.
    fn interned(&self, place: TablePlace, key: &Key) -> Key {
        let _ = place;
        key.clone()
    }

    /// Adds new counts of a key at its [`place`](Self::place). Returns the place that it has from then on.
    fn add(
        &mut self,
        place: Option<TablePlace>,
        id: KeyId,
        key: &Key,
        new: New,
    ) -> Option<TablePlace>;
}

/// The counts that one report added to one key of a parent that never reuses ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The parent's id of the key; `None` if the parent's table was full.
    pub own: Option<KeyId>,
    /// The new counts.
    pub delta: Tally,
    /// Their origin.
    pub origin: Origin,
}

/// The additions of one report to the books.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entered {
    /// The time that the report covers, by the child's clock; `None` for an instance's first report with a
    /// time, and for reports without one.
    pub span: Option<Duration>,
    /// True if the span is the first one of the instance.
    pub first_span: bool,
    /// The time by which the report came late, because it waited with others.
    pub late: Duration,
    /// The new counts of each key that changed, unless they went to a [`Ledger`].
    pub entries: Vec<Entry>,
    /// Requests given up because they may have been counted before.
    pub unconfirmed: u64,
    /// New requests that were counted.
    pub counted: u64,
    /// The part of them with unverified times.
    pub counted_late: u64,
    /// Requests that were not counted: the child cannot have decided so many, or its budgets are used up.
    pub cut: u64,
    /// Maximum number of requests that the child can have decided in the time that the report
    /// covers.
    pub decisions_max: u64,
    /// Keys without room in the parent's table.
    pub rejected_keys: usize,
}

pub(super) struct Noted<F> {
    pub(super) intern: F,
    pub(super) entries: Vec<Entry>,
}

impl<F: FnMut(&Key) -> Option<KeyId>> Ledger for Noted<F> {
    fn place(&mut self, _: KeyId, key: &Key) -> Option<TablePlace> {
        (self.intern)(key).map(|id| TablePlace { id, generation: 0 })
    }

    fn add(
        &mut self,
        place: Option<TablePlace>,
        _: KeyId,
        _: &Key,
        new: New,
    ) -> Option<TablePlace> {
        let own = place.map(|place| place.id);
        self.entries.push(Entry {
            own,
            delta: new.delta,
            origin: new.origin,
        });
        place
    }
}
