//! Changes of the durable state that are not saved yet. All messages to aggregators wait for the save, unless
//! saving fails, so that no restart can take back what aggregators were sent.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::kill::{KillGeneration, Scope};
use plimsoll_core::quantity::MonoTime;

#[derive(Clone, Debug, Default)]
pub(crate) struct PendingSaves {
    /// The number of the latest change, from 1; 0 before it.
    changes: u64,
    /// The number of the latest change that is saved.
    saved: u64,
    /// Why the last save failed, if it did. Directives go out unsaved then: a full disk must not keep a kill from
    /// the fleet.
    pub(crate) failure: Option<String>,
    /// A save is wanted that no message waits for.
    wanted: bool,
    pub(crate) failures: u64,
    /// The scopes of operators' kills that are not saved and were not sent.
    pub(super) kills: BTreeSet<Scope>,
    /// Kills that were sent unsaved, kept until the process ends: the generation, and the time of the first tick since;
    /// `None` before it.
    pub(super) orders: BTreeMap<Scope, (KillGeneration, Option<MonoTime>)>,
}

// === impl PendingSaves ===

impl PendingSaves {
    /// Notes that the durable state changed, if it did. Messages wait for this change.
    pub(super) fn note_change(&mut self, changed: bool) {
        self.changes += u64::from(changed);
    }

    /// Notes that a save is wanted, if it is. No message waits for it.
    pub(super) const fn note_wanted(&mut self, wanted: bool) {
        self.wanted |= wanted;
    }

    /// Returns the number of the latest change if a save is due now, with a new change or without.
    pub(super) fn take_due(&mut self) -> Option<u64> {
        let due = !self.is_saved() || self.wanted;
        due.then(|| {
            self.wanted = false;
            self.changes
        })
    }

    pub(super) fn on_saved(&mut self, number: u64) {
        debug_assert!(
            number <= self.changes,
            "change {number} of {} is not known",
            self.changes
        );
        self.saved = self.saved.max(number);
        self.failure = None;
        if self.is_saved() {
            self.kills.clear();
        }
    }

    /// Notes that a save failed, so that it is tried again.
    pub(super) fn on_failed(&mut self, reason: String) {
        self.failure = Some(reason);
        self.wanted = true;
        self.failures += 1;
    }

    pub(super) const fn is_untouched(&self) -> bool {
        self.changes == 0
    }

    pub(super) const fn is_saved(&self) -> bool {
        self.saved >= self.changes
    }

    /// Returns true if messages may be sent: every change is saved, or saving fails.
    pub(super) const fn is_in_effect(&self) -> bool {
        self.is_saved() || self.failure.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_takes_effect_once_saving_ends() {
        let mut saves = PendingSaves::default();
        assert!(saves.is_untouched() && saves.is_saved());
        assert_eq!(saves.take_due(), None);
        saves.note_change(false);
        assert_eq!(saves.take_due(), None);
        saves.note_change(true);
        assert!(!saves.is_in_effect());
        assert_eq!(saves.take_due(), Some(1));
        saves.note_change(true);
        saves.on_saved(1);
        assert!(
            !saves.is_saved(),
            "a change that came during the save is not part of it"
        );
        saves.on_failed("no room".to_owned());
        assert_eq!(saves.failure.as_deref(), Some("no room"));
        assert!(saves.is_in_effect() && !saves.is_saved());
        assert_eq!((saves.take_due(), saves.failures), (Some(2), 1));
        saves.on_saved(2);
        assert!(saves.is_saved() && saves.is_in_effect() && saves.failure.is_none());
        assert_eq!(saves.take_due(), None);
    }

    #[test]
    fn wanted_save_is_due_once_without_delay() {
        let mut saves = PendingSaves::default();
        saves.note_wanted(true);
        assert!(saves.is_in_effect());
        assert_eq!((saves.take_due(), saves.take_due()), (Some(0), None));
    }
}
