//! A child's side of the books: what it has sent, and what of that is known to have reached the controller.

use std::collections::{BTreeMap, VecDeque};

use super::{Counts, Echo, InstanceId, KeyDefinition, Report, Tally};
use crate::bucket::{Key, KeyId};

/// How many unconfirmed reports are remembered one by one; older ones are told apart no longer, which delays a
/// confirmation but never invents one. At 10 reports a second these are 6.4 s, ten times what a healthy
/// confirmation takes.
const AWAITING_MAX: usize = 64;

/// Turns cumulative counts into reports that carry only what changed, with the definitions that let any parent
/// take over the books (see [`Books`](super::Books)).
///
/// Nothing is ever reset to zero: a report that is lost is made good by the next one. Counts go only to a parent that
/// has answered, so that a stream on which nobody listened leaves nothing in doubt.
#[derive(Debug, Default)]
pub struct Outbox {
    seq: u64,
    /// The parent, once it has answered on the present stream.
    parent: Option<InstanceId>,
    /// The parent that was last sent counts.
    counted_by: Option<InstanceId>,
    keys: Vec<Sent>,
    defined: usize,
    awaiting: VecDeque<(u64, BTreeMap<KeyId, Counts>)>,
}

/// How far one key has come.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    /// In the last report on any stream.
    tally: Tally,
    /// At the last confirmation by anyone.
    confirmed: Counts,
    /// Whether `tally` was sent on the present stream.
    on_stream: bool,
}

impl Outbox {
    /// A new stream begins: numbers start over, keys must be defined again, and what the last stream left
    /// unconfirmed stays so.
    pub fn open(&mut self) {
        self.seq = 0;
        self.parent = None;
        self.defined = 0;
        self.awaiting.clear();
        for key in &mut self.keys {
            key.on_stream = false;
        }
    }

    /// Fills `report` with its number, with definitions of the keys new on this stream, and with the tallies that
    /// changed. `keys` are all keys of this instance, `tally_of` reads one. Before the parent has answered, the report
    /// says only that the child is alive. Linear in the number of keys.
    pub fn fill(&mut self, report: &mut Report, keys: &[Key], mut tally_of: impl FnMut(KeyId) -> Tally) {
        self.seq += 1;
        report.seq = self.seq;
        if self.seq == 1 {
            report.counted_by = self.counted_by;
        }
        if self.parent.is_none() {
            report.time = None;
            return;
        }
        self.keys.resize(keys.len().max(self.keys.len()), Sent::default());
        let mut changed = BTreeMap::new();
        for (id, (key, sent)) in (0..).map(KeyId).zip(keys.iter().zip(&mut self.keys)) {
            if id.index() >= self.defined {
                let definition =
                    KeyDefinition { key: key.clone(), base: sent.confirmed, sent: sent.tally.counts };
                report.definitions.insert(id, definition);
            }
            // A count read while it is being written may seem to go back; what was sent stands.
            let tally = tally_of(id).merge(sent.tally);
            if tally != sent.tally || (!sent.on_stream && tally != Tally::ZERO) {
                sent.tally = tally;
                sent.on_stream = true;
                report.tallies.insert(id, tally);
                changed.insert(id, tally.counts);
            }
        }
        self.defined = keys.len();
        if !changed.is_empty() {
            self.counted_by = self.parent;
        }
        if self.awaiting.len() >= AWAITING_MAX
            && let Some((_, late)) = self.awaiting.pop_back()
        {
            changed = late.into_iter().chain(changed).collect();
        }
        self.awaiting.push_back((self.seq, changed));
    }

    /// The parent has said who it is: from now on it is sent counts.
    pub fn on_answer(&mut self, parent: InstanceId) {
        self.parent = Some(parent);
    }

    /// Takes note of a parent's receipt.
    pub fn on_echo(&mut self, echo: Echo) {
        while self.awaiting.front().is_some_and(|(seq, _)| *seq <= echo.confirmed) {
            let Some((_, counts)) = self.awaiting.pop_front() else { return };
            for (id, counts) in counts {
                if let Some(key) = self.keys.get_mut(id.index()) {
                    key.confirmed = key.confirmed.merge(counts);
                }
            }
        }
    }

    /// The number of the last report on this stream; 0 before the first.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.seq
    }
}
