//! The history of one key over all streams: the totals sent and confirmed, and the parent that received them
//! last.

use crate::report::{Counts, InstanceId, Tally};

/// The totals of one key that were sent and acknowledged, over all streams. `P` names a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct History<P = ParentIndex> {
    pub(super) tally: Tally,
    /// The part that the controller has confirmed.
    pub(super) confirmed: Counts,
    pub(super) last_parent: LastParent<P>,
}

/// The parent that received the counts of a key last, and whether what it remembers of the key can be relied
/// on.
///
/// For each child instance, a parent remembers the totals of keys by name. Its memory is out of date if
/// another parent received counts of the key in between. It belongs to another key if one key ended and a
/// later one got its name. Once the parent has merged a report of the key, its memory is right again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastParent<P = ParentIndex> {
    /// No parent received counts under this name: none has a memory that could mislead.
    NewName,
    /// No parent received counts of this key, but an earlier key may have had its name.
    ReusedName,
    /// This parent: its memory may still hold older counts under the name.
    MaybeStale(P),
    /// This parent: its memory under the name holds only counts of this key; no other parent
    /// received any since.
    Current(P),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ParentIndex(pub(super) u32);

/// The history of a key on its way from one outbox to another (see
/// [`Outbox::release`](super::Outbox::release)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover(History<InstanceId>);

// === impl History ===

impl<P> History<P> {
    pub(super) const fn new(last_parent: LastParent<P>) -> Self {
        Self {
            tally: Tally::ZERO,
            confirmed: Counts::ZERO,
            last_parent,
        }
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed.covers(self.tally.counts)
    }

    pub(super) fn map_parent<Q>(self, f: impl FnOnce(P) -> Q) -> History<Q> {
        let last_parent = match self.last_parent {
            LastParent::NewName => LastParent::NewName,
            LastParent::ReusedName => LastParent::ReusedName,
            LastParent::MaybeStale(parent) => LastParent::MaybeStale(f(parent)),
            LastParent::Current(parent) => LastParent::Current(f(parent)),
        };
        History {
            tally: self.tally,
            confirmed: self.confirmed,
            last_parent,
        }
    }
}

// === impl LastParent ===

impl LastParent {
    pub(super) const fn parent(self) -> Option<ParentIndex> {
        match self {
            Self::NewName | Self::ReusedName => None,
            Self::MaybeStale(parent) | Self::Current(parent) => Some(parent),
        }
    }

    #[inline]
    pub(super) fn on_sent_to(&mut self, parent: ParentIndex) {
        *self = match *self {
            Self::NewName => Self::Current(parent),
            Self::MaybeStale(last) | Self::Current(last) if last == parent => return,
            Self::ReusedName | Self::MaybeStale(_) | Self::Current(_) => Self::MaybeStale(parent),
        };
    }

    /// Records that the parent has merged counts of the key: from now on it remembers this key.
    pub(super) fn on_merged(&mut self) {
        debug_assert!(
            self.parent().is_some(),
            "counts are merged only after a parent was sent them"
        );
        if let Self::MaybeStale(parent) = *self {
            *self = Self::Current(parent);
        }
    }
}

// === impl Handover ===

impl Handover {
    /// A key that counts from zero, and the first one of its name.
    pub const NEW_NAME: Self = Self(History::new(LastParent::NewName));
    /// A key that counts from zero, after an earlier one of the same name, or possibly so.
    pub const REUSED_NAME: Self = Self(History::new(LastParent::ReusedName));

    pub(super) const fn new(history: History<InstanceId>) -> Self {
        Self(history)
    }

    pub(super) const fn into_history(self) -> History<InstanceId> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ParentIndex = ParentIndex(0);
    const OTHER: ParentIndex = ParentIndex(1);

    #[test]
    fn merge_makes_parent_memory_current() {
        for (before, sent, merged) in [
            (
                LastParent::NewName,
                LastParent::Current(ONE),
                LastParent::Current(ONE),
            ),
            (
                LastParent::ReusedName,
                LastParent::MaybeStale(ONE),
                LastParent::Current(ONE),
            ),
            (
                LastParent::MaybeStale(ONE),
                LastParent::MaybeStale(ONE),
                LastParent::Current(ONE),
            ),
            (
                LastParent::MaybeStale(OTHER),
                LastParent::MaybeStale(ONE),
                LastParent::Current(ONE),
            ),
            (
                LastParent::Current(ONE),
                LastParent::Current(ONE),
                LastParent::Current(ONE),
            ),
            (
                LastParent::Current(OTHER),
                LastParent::MaybeStale(ONE),
                LastParent::Current(ONE),
            ),
        ] {
            let mut last = before;
            last.on_sent_to(ONE);
            assert_eq!(last, sent, "after {before:?}");
            last.on_merged();
            assert_eq!(last, merged, "after {before:?}");
        }
    }
}
