//! What a report adds to a parent's own tables, and where it goes.

use std::time::Duration;

use super::Tally;
use crate::names::{Key, KeyId, Place};

/// Where entries of a report come from, which decides whether they speak about the present rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The difference between two reports heard here.
    Observed,
    /// Taken over from another parent's books: tells how much, not when.
    TakenOver,
}

/// What one report added to one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct New {
    /// What is new.
    pub delta: Tally,
    /// How the difference was found.
    pub pedigree: Origin,
}

/// A parent's own tables, into which the entries of a report go one by one.
pub trait Ledger {
    /// The entries that follow cover this span of the child's time, see [`Entered`].
    fn begin(&mut self, span: Option<Duration>, first_span: bool) {
        let _ = (span, first_span);
    }

    /// The place of a key; `None` if there is no room, not even shared.
    fn place(&mut self, key: &Key) -> Option<Place>;

    /// Adds what is new of a key, whose place it was given by [`place`](Self::place). Returns where it went, which is
    /// its place from then on.
    fn add(&mut self, place: Option<Place>, key: &Key, new: New) -> Option<Place>;
}

/// What one report added to one key of a parent that never gives an id to another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The parent's own id of the key; `None` if the parent's table was full.
    pub own: Option<KeyId>,
    /// What is new.
    pub delta: Tally,
    /// How the difference was found.
    pub pedigree: Origin,
}

/// What one report added to the books.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entered {
    /// The time the report covers, by the child's clock; `None` for the first report with a time of an instance.
    pub span: Option<Duration>,
    /// The span is the first one of the instance.
    pub first_span: bool,
    /// What is new, for each key that changed; unless it went to a [`Ledger`].
    pub entries: Vec<Entry>,
    /// Requests given up because nobody can tell whether they were counted before.
    pub unconfirmed: u64,
    /// Keys that found no room in the parent's table.
    pub homeless: usize,
}

/// Notes the entries for a parent that reads them afterwards.
pub(super) struct Noted<F> {
    pub(super) intern: F,
    pub(super) entries: Vec<Entry>,
}

impl<F: FnMut(&Key) -> Option<KeyId>> Ledger for Noted<F> {
    fn place(&mut self, key: &Key) -> Option<Place> {
        (self.intern)(key).map(|id| Place { id, generation: 0 })
    }

    fn add(&mut self, place: Option<Place>, _key: &Key, new: New) -> Option<Place> {
        let own = place.map(|place| place.id);
        self.entries.push(Entry { own, delta: new.delta, pedigree: new.pedigree });
        place
    }
}
