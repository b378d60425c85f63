//! The lines of reports to the parent: the counts of each listed tenant and of each class, which includes the names that
//! the policy does not list. So a roll-up grows with the policy and not with the names.

use plimsoll_core::names::{Key, KeyId};
use plimsoll_core::report::{Counts, Outbox, Tally};

#[derive(Debug, Default)]
pub(crate) struct Lines {
    keys: Vec<Key>,
    tallies: Vec<Tally>,
    free: Vec<KeyId>,
    /// Lines that count no more, and end once the controller has confirmed their counts.
    leaving: Vec<KeyId>,
}

impl Lines {
    /// The keys of all lines, each at its id's index. At the ids of ended lines are the keys that had them last.
    pub(crate) fn keys(&self) -> &[Key] {
        &self.keys
    }

    pub(crate) fn tally(&self, line: KeyId) -> Tally {
        self.tallies.get(line.index()).copied().unwrap_or_default()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, Counts)> {
        let all = (0..).map(KeyId).zip(self.keys.iter().zip(&self.tallies));
        all.filter(|(line, _)| !self.free.contains(line))
            .map(|(_, (key, tally))| (key, tally.counts))
    }

    pub(super) fn open(&mut self, key: &Key, outbox: &mut Outbox) -> KeyId {
        let line = self.free.pop().unwrap_or_else(|| {
            self.keys.push(key.clone());
            self.tallies.push(Tally::ZERO);
            KeyId(self.keys.len() as u32 - 1)
        });
        if let Some(held) = self.keys.get_mut(line.index()) {
            held.clone_from(key);
        }
        // The counts of the line that had this id before are settled, or the id would not be free.
        outbox.replace(line);
        line
    }

    #[inline]
    pub(super) fn add(&mut self, line: KeyId, counts: Counts) {
        if let Some(tally) = self.tallies.get_mut(line.index()) {
            tally.counts = tally.counts.plus(counts);
        }
    }

    pub(super) fn add_late(&mut self, line: KeyId, counts: Counts) {
        if let Some(tally) = self.tallies.get_mut(line.index()) {
            tally.late = tally.late.plus(counts);
        }
    }

    pub(super) fn leave(&mut self, line: KeyId) {
        self.leaving.push(line);
    }

    /// Takes back a line that was to leave. Returns false if it has ended.
    pub(super) fn stay(&mut self, line: KeyId) -> bool {
        let before = self.leaving.len();
        self.leaving.retain(|leaving| *leaving != line);
        before > self.leaving.len()
    }

    /// Ends the leaving lines whose counts the controller has confirmed, and returns them.
    pub(super) fn end_settled(&mut self, outbox: &mut Outbox) -> Vec<KeyId> {
        let is_settled = |line: &KeyId| outbox.is_settled(*line, self.tally(*line));
        let (settled, leaving) = self
            .leaving
            .iter()
            .copied()
            .partition::<Vec<KeyId>, _>(is_settled);
        self.leaving = leaving;
        for line in &settled {
            outbox.release(*line);
            if let Some(tally) = self.tallies.get_mut(line.index()) {
                *tally = Tally::ZERO;
            }
        }
        self.free.extend(&settled);
        settled
    }
}
