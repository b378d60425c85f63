//! The brain and its durable state: what has to be written down before it is told, and what happens where that fails.

use super::*;

/// Whether what was decided has been written down.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Saves {
    changed: u64,
    saved: u64,
    /// The last write failed: a full disk must not keep a kill from the fleet.
    failing: bool,
    /// There is something that should be written, and that nothing waits for.
    aside: bool,
}

impl Saves {
    /// Nothing has changed so far.
    pub(super) const fn is_untouched(&self) -> bool {
        self.changed == 0
    }

    /// Something should be written when there is time.
    pub(super) const fn note_aside(&mut self, wanted: bool) {
        self.aside |= wanted;
    }
}

impl Brain {
    /// What must be written down, and under which number to report that it was.
    #[must_use]
    pub fn unsaved(&mut self) -> Option<(u64, Durable)> {
        let due = !self.is_saved() || self.saves.aside;
        due.then(|| {
            self.saves.aside = false;
            (self.saves.changed, self.durable.clone())
        })
    }

    /// The state with this number was written.
    pub fn on_saved(&mut self, number: u64) {
        self.saves.saved = self.saves.saved.max(number);
        self.saves.failing = false;
    }

    /// A write failed: directives go out all the same, it will be tried again.
    pub fn on_save_failed(&mut self) {
        self.saves.failing = true;
        self.saves.aside = true;
        self.figures.saves_failed += 1;
    }

    /// Whether everything decided so far is written down.
    #[must_use]
    pub const fn is_saved(&self) -> bool {
        self.saves.saved >= self.saves.changed
    }

    /// Whether everything decided so far is written down, or cannot be: then it takes effect all the same.
    #[must_use]
    pub const fn is_in_effect(&self) -> bool {
        self.is_saved() || self.saves.failing
    }

    pub(super) fn note_change(&mut self, changed: bool) {
        self.saves.changed += u64::from(changed);
    }
}
