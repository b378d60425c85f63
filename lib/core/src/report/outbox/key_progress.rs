//! The progress of one key on the present stream: undefined, defined, reported or released.

use std::num::NonZeroU32;

use super::history::{History, LastParent, ParentIndex};
use crate::report::{Counts, Tally};

/// A place for one key in an outbox. Small on purpose: an aggregator may have hundreds of thousands of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    pub(super) progress: KeyProgress,
    /// Changes whenever a key enters or leaves the slot, so that an acknowledgement for one key never counts
    /// for the next.
    pub(super) generation: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum KeyProgress {
    /// No key: it is finished, or another outbox has it. The next key in the slot takes over `free_id`.
    Released { free_id: Option<WireId> },
    /// The next report defines the key, under `id` or, without one, under the next free wire id.
    Undefined {
        id: Option<WireId>,
        history: History,
    },
    /// The key is defined on the present stream, but none of its counts were sent on it.
    Defined { id: WireId, history: History },
    /// Counts of the key were sent on the present stream.
    Reported { id: WireId, history: History },
}

/// The number of a key on one stream, from 0. Stored plus one, so that `Option<WireId>` takes four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WireId(NonZeroU32);

pub(super) struct Reported {
    pub(super) id: WireId,
    pub(super) tally: Tally,
    pub(super) increase: Counts,
}

// === impl Slot ===

impl Slot {
    /// Empties the slot. Returns the history of its key; `None` if there was no key.
    pub(super) fn release(&mut self) -> Option<History> {
        let history = *self.progress.history()?;
        // A parent forgets the former key of a wire id that is defined anew. That must not happen while it
        // still has to account for unconfirmed counts of that key, so only a confirmed key leaves its id to
        // the next one.
        let free_id = self
            .progress
            .id()
            .filter(|_| history.confirmed == history.tally.counts);
        *self = Self {
            progress: KeyProgress::Released { free_id },
            generation: self.generation.wrapping_add(1),
        };
        Some(history)
    }

    pub(super) fn adopt(&mut self, history: History) {
        *self = Self {
            progress: KeyProgress::Undefined {
                id: self.progress.id(),
                history,
            },
            generation: self.generation.wrapping_add(1),
        };
    }
}

// === impl KeyProgress ===

impl Default for KeyProgress {
    fn default() -> Self {
        Self::Undefined {
            id: None,
            history: History::new(LastParent::NewName),
        }
    }
}

impl KeyProgress {
    pub(super) fn reopen(&mut self) {
        *self = match *self {
            Self::Released { .. } => Self::Released { free_id: None },
            Self::Undefined { history, .. }
            | Self::Defined { history, .. }
            | Self::Reported { history, .. } => Self::Undefined { id: None, history },
        };
    }

    /// Defines the key if it is undefined. Takes `next_id` if no wire id was left to it.
    pub(super) fn define(&mut self, next_id: &mut u32) -> Option<(WireId, &History)> {
        let Self::Undefined { id, history } = *self else {
            return None;
        };
        let id = id.unwrap_or_else(|| {
            *next_id += 1;
            WireId::new(*next_id - 1)
        });
        *self = Self::Defined { id, history };
        self.history().map(|history| (id, history))
    }

    /// Records that the report being filled carries the key to `parent`, and returns its part of it. Returns
    /// `None` if the total was already sent on this stream, if it is zero and nothing was sent, or if there
    /// is no key. `read` returns the present total.
    #[inline]
    pub(super) fn report(
        &mut self,
        parent: ParentIndex,
        read: impl FnOnce() -> Tally,
    ) -> Option<Reported> {
        let (id, history, is_first) = match self {
            Self::Reported { id, history } => (*id, history, false),
            Self::Defined { id, history } => (*id, history, true),
            Self::Released { .. } => return None,
            Self::Undefined { .. } => {
                debug_assert!(false, "a key is defined before it is reported");
                return None;
            }
        };
        // A total that is read while another thread writes it may seem to go back; the total already sent
        // holds.
        let tally = read().merge(history.tally);
        let is_due = tally != history.tally || (is_first && tally != Tally::ZERO);
        if !is_due {
            return None;
        }
        let increase = tally.counts.since(history.tally.counts);
        history.tally = tally;
        history.last_parent.on_sent_to(parent);
        if is_first {
            *self = Self::Reported {
                id,
                history: *history,
            };
        }
        Some(Reported {
            id,
            tally,
            increase,
        })
    }

    #[inline]
    pub(super) const fn history(&self) -> Option<&History> {
        match self {
            Self::Released { .. } => None,
            Self::Undefined { history, .. }
            | Self::Defined { history, .. }
            | Self::Reported { history, .. } => Some(history),
        }
    }

    #[inline]
    pub(super) const fn history_mut(&mut self) -> Option<&mut History> {
        match self {
            Self::Released { .. } => None,
            Self::Undefined { history, .. }
            | Self::Defined { history, .. }
            | Self::Reported { history, .. } => Some(history),
        }
    }

    /// The wire id of a key that is defined on the present stream.
    pub(super) fn defined(&self) -> Option<u32> {
        match self {
            Self::Defined { id, .. } | Self::Reported { id, .. } => Some(id.get()),
            Self::Released { .. } | Self::Undefined { .. } => None,
        }
    }

    const fn id(&self) -> Option<WireId> {
        match *self {
            Self::Released { free_id: id } | Self::Undefined { id, .. } => id,
            Self::Defined { id, .. } | Self::Reported { id, .. } => Some(id),
        }
    }
}

// === impl WireId ===

impl WireId {
    const fn new(id: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(id))
    }

    #[inline]
    pub(super) const fn get(self) -> u32 {
        self.0.get() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ParentIndex = ParentIndex(0);

    fn tally(offered: u64) -> Tally {
        Tally {
            counts: Counts {
                offered,
                ..Counts::ZERO
            },
            late: Counts::ZERO,
        }
    }

    #[test]
    fn slot_takes_no_more_than_240_bytes() {
        // 144 for the totals sent, 72 for those confirmed; the aggregator's memory limit counts on the sum.
        assert!(size_of::<Slot>() <= 240, "{}", size_of::<Slot>());
        assert_eq!(size_of::<Option<WireId>>(), 4);
    }

    #[test]
    fn key_starts_over_on_a_new_stream() {
        let (mut progress, mut next) = (KeyProgress::default(), 7);
        assert_eq!(progress.define(&mut next).map(|(id, _)| id.get()), Some(7));
        assert!(progress.define(&mut next).is_none());
        assert!(progress.report(ONE, || tally(0)).is_none());
        let reported = progress.report(ONE, || tally(3)).unwrap();
        assert_eq!(
            (reported.id.get(), reported.tally, reported.increase.offered),
            (7, tally(3), 3)
        );
        assert!(progress.report(ONE, || tally(3)).is_none());
        progress.reopen();
        assert_eq!(progress.define(&mut next).map(|(id, _)| id.get()), Some(8));
        assert_eq!(
            progress.report(ONE, || tally(3)).unwrap().increase,
            Counts::ZERO,
            "sent once more, but not new"
        );
    }

    #[test]
    fn only_a_confirmed_key_passes_its_id() {
        for (confirmed, expected) in [(3, 0), (2, 1)] {
            let (mut slot, mut next) = (Slot::default(), 0);
            slot.progress.define(&mut next);
            slot.progress.report(ONE, || tally(3));
            slot.progress.history_mut().unwrap().confirmed = tally(confirmed).counts;
            assert_eq!(slot.release().unwrap().tally, tally(3));
            assert!(slot.release().is_none() && slot.progress.report(ONE, || tally(4)).is_none());
            slot.adopt(History::new(LastParent::ReusedName));
            assert_eq!(
                slot.progress.define(&mut next).map(|(id, _)| id.get()),
                Some(expected)
            );
        }
    }
}
