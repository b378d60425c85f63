//! The counts of many keys in columns, in the order of ids, as a report carries them.

use std::collections::BTreeMap;

use super::{Counts, Tally};
use crate::names::KeyId;

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
        Self {
            ids: Vec::with_capacity(keys),
            counts: Vec::with_capacity(keys),
            late: Vec::new(),
        }
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
        self.ids
            .iter()
            .zip(&self.counts)
            .enumerate()
            .map(|(at, (id, counts))| {
                let late = self.late.get(at).copied().unwrap_or_default();
                (
                    *id,
                    Tally {
                        counts: *counts,
                        late,
                    },
                )
            })
    }
}

impl FromIterator<(KeyId, Tally)> for Tallies {
    /// Accepts any order; of two with one id the later one counts.
    fn from_iter<I: IntoIterator<Item = (KeyId, Tally)>>(tallies: I) -> Self {
        let ordered: BTreeMap<KeyId, Tally> = tallies.into_iter().collect();
        let mut sorted = Self::with_capacity(ordered.len());
        for (id, tally) in ordered {
            sorted.push(id, tally);
        }
        sorted
    }
}
