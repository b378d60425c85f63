//! A child's side of the books: what it has sent, and what of that is known to have reached the controller.

use std::collections::VecDeque;

use super::{Counts, Echo, InstanceId, KeyDefinition, Report, Tallies, Tally};
use crate::names::{Key, KeyId};

/// How many unconfirmed reports are remembered one by one; older ones are told apart no longer, which delays a
/// confirmation but never invents one. At 10 reports a second these are 6.4 s, ten times what a healthy
/// confirmation takes.
const AWAITING_MAX: usize = 64;

/// Turns cumulative counts into reports that carry only what changed, with the definitions that let any parent
/// take over the books (see [`Books`](super::Books)).
///
/// Nothing is ever reset to zero: a report that is lost is made good by the next one. Counts go only to a parent that
/// has answered, so that a stream on which nobody listened leaves nothing in doubt.
///
/// Its owner numbers keys densely from 0. Ids on the stream are the outbox's own, given out in that order and dense
/// too; the two are the same as long as nothing is [released](Self::release).
#[derive(Debug, Default)]
pub struct Outbox {
    seq: u64,
    /// The parent, once it has answered on the present stream, by its place in `parents`.
    parent: Option<u32>,
    /// Parents that were sent counts, or may be: keys name them by their places, which takes less room.
    parents: Vec<InstanceId>,
    keys: Vec<Sent>,
    /// How many ids of the stream are given out.
    defined: u32,
    /// Keys that have to be defined, if any of those below `seen`.
    undefined: bool,
    /// How many of the keys were there at the last report.
    seen: usize,
    awaiting: VecDeque<(u64, Vec<Reached>)>,
    /// The parent has merged the reports up to this one.
    covered: u64,
}

/// How far a key came with one report.
#[derive(Clone, Copy, Debug)]
struct Reached {
    key: u32,
    life: u32,
    counts: Counts,
}

/// How far one key has come.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// In the last report on any stream.
    tally: Tally,
    /// At the last confirmation by anyone.
    confirmed: Counts,
    /// The parent that was last sent its counts, by its place in `parents`, or `NONE`.
    counted_by: u32,
    /// Nobody was ever sent counts of a key of this name.
    is_first: bool,
    /// That parent remembers this key, not an earlier one of the same name, nor what it knew before another parent came
    /// in between.
    is_known: bool,
    /// Its id on the present stream, or `NONE`, and whether it was defined under it.
    id: u32,
    defined: bool,
    /// Whether the last tally was sent on the present stream.
    on_stream: bool,
    /// It is another outbox's, or nobody's.
    released: bool,
    /// Counts the keys that had this place: what one sent does not confirm the next.
    life: u32,
}

/// Stands for no id and no parent.
const NONE: u32 = u32::MAX;

impl Default for Sent {
    fn default() -> Self {
        Self {
            tally: Tally::ZERO,
            confirmed: Counts::ZERO,
            counted_by: NONE,
            is_first: true,
            is_known: false,
            id: NONE,
            defined: false,
            on_stream: false,
            released: false,
            life: 0,
        }
    }
}

/// How far keys came with two reports that are told apart no longer. Both in the order of keys, as is the result.
fn joined(earlier: Vec<Reached>, later: Vec<Reached>) -> Vec<Reached> {
    let mut all: Vec<Reached> = later.into_iter().chain(earlier).collect();
    // Stable: what came later stands first among those of one key, and is kept.
    all.sort_by_key(|reached| reached.key);
    all.dedup_by_key(|reached| reached.key);
    all
}

/// How far the books of a key have come, to be taken from one outbox to another (see [`Outbox::release`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handover {
    /// In the last report on any stream.
    tally: Tally,
    /// At the last confirmation by anyone.
    confirmed: Counts,
    /// The parent that was last sent its counts, and whether it is known to remember them.
    counted_by: Option<InstanceId>,
    is_known: bool,
    is_first: bool,
}

impl Handover {
    /// Of a key whose name no parent has ever heard. The default is that of one that counts from zero as well, but after
    /// an earlier one of its name.
    pub const FIRST: Self = Self {
        tally: Tally::ZERO,
        confirmed: Counts::ZERO,
        counted_by: None,
        is_known: false,
        is_first: true,
    };
}

impl Outbox {
    /// A new stream begins: numbers start over, keys must be defined again, and what the last stream left
    /// unconfirmed stays so.
    pub fn open(&mut self) {
        self.seq = 0;
        self.parent = None;
        self.defined = 0;
        self.covered = 0;
        self.awaiting.clear();
        self.undefined = true;
        let mut named = vec![NONE; self.parents.len()];
        for key in &mut self.keys {
            (key.id, key.defined, key.on_stream) = (NONE, false, false);
            if let Some(named) = named.get_mut(key.counted_by as usize) {
                *named = 0;
            }
        }
        self.forget_parents(&mut named);
    }

    /// Forgets parents that no key names any more: those whose place is not 0.
    fn forget_parents(&mut self, places: &mut [u32]) {
        let mut left = 0;
        for place in places.iter_mut().filter(|place| **place == 0) {
            *place = left;
            left += 1;
        }
        if (left as usize) < self.parents.len() {
            let mut kept = places.iter().map(|place| *place != NONE);
            self.parents.retain(|_| kept.next().unwrap_or(false));
            for key in &mut self.keys {
                key.counted_by = places.get(key.counted_by as usize).copied().unwrap_or(NONE);
            }
        }
    }

    /// Fills `report` with its number, with definitions of the keys new on this stream, and with the tallies that
    /// changed. `keys` are all keys of this instance, `tally_of` reads one. Before the parent has answered, the report
    /// says only that the child is alive. Linear in the number of keys.
    pub fn fill(&mut self, report: &mut Report, keys: &[Key], tally_of: impl FnMut(KeyId) -> Tally) {
        self.fill_noting(report, keys, tally_of, |_, _| {});
    }

    /// The same, and notes of each key that changed what came since it was last sent to anybody.
    pub fn fill_noting(
        &mut self,
        report: &mut Report,
        keys: &[Key],
        mut tally_of: impl FnMut(KeyId) -> Tally,
        mut note: impl FnMut(KeyId, Counts),
    ) {
        self.seq += 1;
        report.seq = self.seq;
        let Some(parent) = self.parent else {
            report.time = None;
            return;
        };
        self.keys.resize(keys.len().max(self.keys.len()), Sent::default());
        self.define(report, keys, parent);
        let mut changed = Vec::new();
        let mut tallies = Tallies::default();
        let mut unsorted = Vec::new();
        for (at, sent) in (0..).zip(self.keys.iter_mut().take(keys.len())) {
            if sent.released {
                continue;
            }
            // A count read while it is being written may seem to go back; what was sent stands.
            let tally = tally_of(KeyId(at)).merge(sent.tally);
            if tally != sent.tally || (!sent.on_stream && tally != Tally::ZERO) {
                let id = KeyId(sent.id);
                note(KeyId(at), tally.counts.since(sent.tally.counts));
                sent.tally = tally;
                if sent.counted_by != parent {
                    sent.is_known = sent.is_first && sent.counted_by == NONE;
                    sent.counted_by = parent;
                }
                sent.on_stream = true;
                if !tallies.push(id, tally) {
                    unsorted.push((id, tally));
                }
                changed.push(Reached { key: at, life: sent.life, counts: tally.counts });
            }
        }
        if !unsorted.is_empty() {
            tallies = tallies.iter().chain(unsorted).collect();
        }
        report.tallies = tallies;
        if self.awaiting.len() >= AWAITING_MAX
            && let Some((_, late)) = self.awaiting.pop_back()
        {
            changed = joined(late, changed);
        }
        self.awaiting.push_back((self.seq, changed));
    }

    fn define(&mut self, report: &mut Report, keys: &[Key], parent: u32) {
        let from = if self.undefined { 0 } else { self.seen };
        self.undefined = false;
        self.seen = keys.len();
        for (key, sent) in keys.iter().zip(&mut self.keys).skip(from) {
            if sent.defined || sent.released {
                continue;
            }
            if sent.id == NONE {
                sent.id = self.defined;
                self.defined += 1;
            }
            sent.defined = true;
            let definition = KeyDefinition {
                key: key.clone(),
                base: sent.confirmed,
                sent: sent.tally.counts,
                continues: sent.counted_by == parent && sent.is_known,
            };
            report.definitions.insert(KeyId(sent.id), definition);
        }
    }

    /// The parent has said who it is: from now on it is sent counts.
    pub fn on_answer(&mut self, parent: InstanceId) {
        let place = self.place_of(parent);
        self.parent = Some(place);
    }

    fn place_of(&mut self, parent: InstanceId) -> u32 {
        let known = self.parents.iter().position(|known| *known == parent);
        let place = known.unwrap_or_else(|| {
            self.parents.push(parent);
            self.parents.len() - 1
        });
        place as u32
    }

    /// Takes note of a parent's receipt.
    pub fn on_echo(&mut self, echo: Echo) {
        let merged = |(seq, _): &&(u64, Vec<Reached>)| *seq <= echo.covered;
        let new = self.awaiting.iter().skip_while(|(seq, _)| *seq <= self.covered).take_while(merged);
        for Reached { key, life, .. } in new.flat_map(|(_, reached)| reached) {
            if let Some(sent) = self.keys.get_mut(*key as usize).filter(|sent| sent.life == *life) {
                sent.is_known = true;
            }
        }
        self.covered = self.covered.max(echo.covered);
        while self.awaiting.front().is_some_and(|(seq, _)| *seq <= echo.confirmed) {
            let Some((_, reached)) = self.awaiting.pop_front() else { return };
            for Reached { key, life, counts } in reached {
                if let Some(sent) = self.keys.get_mut(key as usize).filter(|sent| sent.life == life) {
                    sent.confirmed = sent.confirmed.merge(counts);
                }
            }
        }
    }

    /// Whether everything that was counted of a key up to `tally` is known to have reached the controller, so that
    /// its id may go to another key. O(1).
    #[must_use]
    pub fn is_settled(&self, id: KeyId, tally: Tally) -> bool {
        match self.keys.get(id.index()) {
            Some(sent) => sent.tally == tally && sent.confirmed == tally.counts,
            None => tally == Tally::ZERO,
        }
    }

    /// Whether everything that was sent of a key is confirmed, so that its books can go elsewhere and nothing is given
    /// up. O(1).
    #[must_use]
    pub fn is_confirmed(&self, id: KeyId) -> bool {
        self.keys.get(id.index()).is_none_or(|sent| sent.confirmed.covers(sent.tally.counts))
    }

    /// The key at `id` is finished, and its owner has another one there, which counts from zero. False, and nothing
    /// happens, if not everything sent for it is confirmed: a parent remembers nothing of a finished key.
    pub fn replace(&mut self, id: KeyId) -> bool {
        let tally = self.keys.get(id.index()).map_or(Tally::ZERO, |sent| sent.tally);
        let settled = self.is_settled(id, tally);
        if settled {
            self.adopt(id, Handover::default());
        }
        settled
    }

    /// Gives the books of a key away: it is no longer filled here, and no report on this stream moves them. `None` if
    /// it was given away before.
    ///
    /// To be rid of places that were given away for good, make a new outbox and have it adopt the others.
    pub fn release(&mut self, id: KeyId) -> Option<Handover> {
        self.reach(id);
        let sent = self.keys.get_mut(id.index()).filter(|sent| !sent.released)?;
        let Sent { tally, confirmed, counted_by, is_known, is_first, id, life, .. } = *sent;
        // The id goes to the next key in this place only where all that was sent is confirmed. Of any other key the parent
        // would forget how far it has come, and might remember an earlier place of it instead.
        let id = if confirmed == tally.counts { id } else { NONE };
        *sent = Sent { released: true, id, life: life.wrapping_add(1), ..Sent::default() };
        let counted_by = self.parents.get(counted_by as usize).copied();
        Some(Handover { tally, confirmed, counted_by, is_known, is_first })
    }

    /// Takes over the books of a key from another outbox, or of one that counts from zero, into the place of a key that
    /// is finished or was released. The next report defines it.
    pub fn adopt(&mut self, id: KeyId, held: Handover) {
        self.reach(id);
        let counted_by = held.counted_by.map_or(NONE, |parent| self.place_of(parent));
        if let Some(sent) = self.keys.get_mut(id.index()) {
            let Handover { tally, confirmed, is_known, is_first, .. } = held;
            let (id, life) = (sent.id, sent.life.wrapping_add(1));
            *sent = Sent { tally, confirmed, counted_by, is_known, is_first, id, life, ..Sent::default() };
            self.undefined = true;
        }
    }

    fn reach(&mut self, id: KeyId) {
        self.keys.resize((id.index() + 1).max(self.keys.len()), Sent::default());
    }

    /// The number of the last report on this stream; 0 before the first.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.seq
    }
}
