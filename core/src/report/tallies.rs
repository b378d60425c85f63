//! The counts of many keys in columns, in the order of ids, as a report carries them.

use super::{Counts, Tally};
use crate::names::KeyId;
use crate::stats::merge_ascending;

/// Cumulative tallies by the child's ids, ascending, each id once.
///
/// Columns, because almost no tally has a late part: ids and counts are dense, and late parts take room only
/// in a report that has any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tallies {
    ids: Vec<KeyId>,
    counts: Vec<Counts>,
    /// As long as the other columns if any late part is not zero, else empty.
    late: Vec<Counts>,
}

impl Tallies {
    /// Creates an empty set with room for `keys` tallies.
    pub fn with_capacity(keys: usize) -> Self {
        Self { ids: Vec::with_capacity(keys), counts: Vec::with_capacity(keys), late: Vec::new() }
    }

    /// Adds the tally of a key with an id above all others. Returns false, without a change, for other ids.
    /// Amortised O(1).
    #[inline]
    pub fn push(&mut self, id: KeyId, tally: Tally) -> bool {
        if self.ids.last().is_some_and(|last| *last >= id) {
            return false;
        }
        if tally.late != Counts::ZERO || self.has_late() {
            self.late.resize(self.ids.len(), Counts::ZERO);
            self.late.push(tally.late);
        }
        self.ids.push(id);
        self.counts.push(tally.counts);
        true
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns true if any tally has a late part.
    #[inline]
    pub fn has_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// The highest id.
    pub fn last_id(&self) -> Option<KeyId> {
        self.ids.last().copied()
    }

    /// Every key with its tally, ids ascending.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (KeyId, Tally)> + '_ {
        self.ids.iter().zip(&self.counts).enumerate().map(|(at, (id, counts))| {
            let late = self.late.get(at).copied().unwrap_or_default();
            (*id, Tally { counts: *counts, late })
        })
    }

    /// Joins two sets; a key in both gets the join of its tallies. Linear.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.ids.first() > self.ids.last() {
            for (id, tally) in other.iter() {
                self.push(id, tally);
            }
            return self;
        }
        let mut joined = Self::with_capacity(self.len() + other.len());
        for (id, tally) in merge_ascending(self.iter(), other.iter(), Tally::merge) {
            joined.push(id, tally);
        }
        joined
    }

    /// Removes the keys for which `keep` returns false.
    #[must_use]
    pub fn retain(self, mut keep: impl FnMut(KeyId) -> bool) -> Self {
        self.iter().filter(|(id, _)| keep(*id)).collect()
    }
}

impl FromIterator<(KeyId, Tally)> for Tallies {
    /// Accepts any order; of two with one id the later one counts.
    fn from_iter<I: IntoIterator<Item = (KeyId, Tally)>>(tallies: I) -> Self {
        let mut tallies: Vec<(KeyId, Tally)> = tallies.into_iter().collect();
        if !tallies.is_sorted_by(|a, b| a.0 < b.0) {
            // The sort is stable, and the last of equal ids is kept.
            tallies.sort_by_key(|(id, _)| *id);
            tallies.reverse();
            tallies.dedup_by_key(|(id, _)| *id);
            tallies.reverse();
        }
        let mut sorted = Self::with_capacity(tallies.len());
        for (id, tally) in tallies {
            sorted.push(id, tally);
        }
        sorted
    }
}
