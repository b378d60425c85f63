//! The outbox: a child's side of reporting. It turns the counts of each key into reports for the parent, and
//! tracks how far the parent and the controller have acknowledged them.
//!
//! A child is a client or an aggregator; its parent is the aggregator or the controller that it has
//! a stream to. A key is a tenant within a bucket, with counts of requests.
//!
//! # Rules
//! 1. **Counts are totals** since the key began; they never go back. A report carries the totals that changed
//!    since the report before. Reports arrive in order or the stream ends, and the next stream repeats every
//!    total above zero. A lost report therefore costs nothing.
//! 2. **No counts before the answer.** A stream begins with reports without counts. Counts follow once the
//!    parent's first message has named its instance, because a definition (rule 3) has to say whether this
//!    parent was the last to receive counts of the key.
//! 3. **A key is defined before its first counts on a stream.** The [definition](KeyDefinition)
//!    gives the key a small number for this stream, its wire id. It also gives the parent the total
//!    to count on from: how much of the key is confirmed, how much was sent to any parent, and
//!    whether the parent may rely on its own memory of the key (see [`Books`](super::Books) for the
//!    parent's side).
//! 4. **Acknowledgement has two steps** ([`Echo`]). *Covered*: the parent has merged the report, but would
//!    lose it in a crash. *Confirmed*: the controller has the counts, and no crash of an aggregator can lose
//!    them any more. A controller as the parent confirms what it covers.
//! 5. **A key moves with its history.** One outbox [releases](Outbox::release) a key and another one, with a
//!    stream to another parent, [adopts](Outbox::adopt) it. The new parent counts on from the total that was
//!    sent. Counts that were sent but not confirmed may be lost with the former parent; the new one records
//!    them as unconfirmed.
//!
//! # States of a key on the present stream
//! ```text
//!  Undefined --- the next report defines it ------------> Defined
//!  Defined --- a report carries its total --------------> Reported
//!  Defined, Reported --- a new stream begins -----------> Undefined
//!  any state --- release: the slot is empty ------------> Released
//!  new slot --- the owner has a new key ---------------> Undefined
//!  Released --- adopt: a key takes the slot ------------> Undefined
//!  a finished key --- replace: the next key takes over -> Undefined
//! ```
//! `KeyProgress` is this state. `History` stays with it over all streams: the total sent, the total
//! confirmed, and `LastParent`, the parent that received counts last. `InFlight` holds the reports
//! that are not confirmed yet. A key is *finished* once its owner counts no more for it and all its
//! counts are sent and confirmed.

mod history;
mod in_flight;
mod key_progress;

pub use history::Handover;

use std::collections::HashMap;

use super::{Counts, Echo, InstanceId, KeyDefinition, Report, Tallies, Tally};
use crate::names::{Key, KeyId};

use history::{History, LastParent, ParentIndex};
use in_flight::{InFlight, SentCounts};
use key_progress::Slot;

/// Builds the reports of one uplink and tracks what of them is acknowledged.
///
/// The owner numbers its keys densely from 0; the outbox has a slot for each. Wire ids are dense as well.
/// They equal the slot numbers until a key is [released](Self::release); after that even their order may
/// differ.
#[derive(Debug, Default)]
pub struct Outbox {
    /// The number of the last report on the present stream.
    seq: u64,
    /// The parent that answered on the present stream; `None` until it does.
    parent: Option<ParentIndex>,
    /// The parents that keys refer to by index, which takes a quarter of the room of an [`InstanceId`].
    parents: Vec<InstanceId>,
    slots: Vec<Slot>,
    /// The first wire id that is not given out on the present stream.
    next_wire_id: u32,
    /// True if a slot below `checked_slots` may hold an undefined key.
    has_undefined: bool,
    /// The number of slots that the last report checked for undefined keys.
    checked_slots: usize,
    in_flight: InFlight,
}

// === Reports ===

impl Outbox {
    /// Begins a new stream: report numbers and wire ids start over, every key has to be defined again, and
    /// counts that the former stream left unconfirmed are sent again.
    pub fn open(&mut self) {
        self.seq = 0;
        self.parent = None;
        self.next_wire_id = 0;
        self.has_undefined = true;
        self.in_flight.clear();
        for slot in &mut self.slots {
            slot.progress.reopen();
        }
        self.forget_unused_parents();
    }

    /// Records which parent answered on the stream. From now on it is sent counts.
    pub fn on_answer(&mut self, parent: InstanceId) {
        self.parent = Some(self.parent_index(parent));
    }

    /// Fills `report` with its number, the definitions of keys new on this stream and the totals that
    /// changed.
    ///
    /// `keys` are all keys of the owner, with an entry for each slot, empty ones included; `tally_of` reads
    /// the total of one. Until the parent has answered, this adds no definitions and no counts, and removes the
    /// report's time. Linear in the number of keys.
    pub fn fill(
        &mut self,
        report: &mut Report,
        keys: &[Key],
        tally_of: impl FnMut(KeyId) -> Tally,
    ) {
        self.fill_with(report, keys, tally_of, |_, _| {});
    }

    /// Fills `report` like [`fill`](Self::fill), and calls `on_increase` for each reported key with the
    /// counts that no earlier report on any stream carried.
    pub fn fill_with(
        &mut self,
        report: &mut Report,
        keys: &[Key],
        mut tally_of: impl FnMut(KeyId) -> Tally,
        mut on_increase: impl FnMut(KeyId, Counts),
    ) {
        self.seq += 1;
        report.seq = self.seq;
        let Some(parent) = self.parent else {
            report.time = None;
            return;
        };
        self.slots
            .resize(keys.len().max(self.slots.len()), Slot::default());
        self.define(report, keys, parent);
        let mut sent = Vec::new();
        let mut tallies = Tallies::default();
        let mut unsorted = Vec::new();
        for (index, slot) in (0..).zip(self.slots.iter_mut().take(keys.len())) {
            let Some(reported) = slot.progress.report(parent, || tally_of(KeyId(index))) else {
                continue;
            };
            on_increase(KeyId(index), reported.increase);
            let id = KeyId(reported.id.get());
            if !tallies.push(id, reported.tally) {
                unsorted.push((id, reported.tally));
            }
            let counts = reported.tally.counts;
            sent.push(SentCounts {
                slot: index,
                generation: slot.generation,
                counts,
            });
        }
        if !unsorted.is_empty() {
            tallies = tallies.iter().chain(unsorted).collect();
        }
        report.tallies = tallies;
        self.in_flight.push(self.seq, sent);
    }

    fn define(&mut self, report: &mut Report, keys: &[Key], parent: ParentIndex) {
        let from = if self.has_undefined {
            0
        } else {
            self.checked_slots
        };
        self.has_undefined = false;
        self.checked_slots = keys.len();
        for (key, slot) in keys.iter().zip(&mut self.slots).skip(from) {
            let Some((id, history)) = slot.progress.define(&mut self.next_wire_id) else {
                continue;
            };
            let definition = KeyDefinition {
                key: key.clone(),
                base: history.confirmed,
                sent: history.tally.counts,
                continues: history.last_parent == LastParent::Current(parent),
            };
            report.definitions.insert(KeyId(id.get()), definition);
        }
    }

    /// Returns the slots of the keys that have these wire ids on the present stream. Linear in the
    /// ids while these equal their slots, and else in the slots, too.
    pub fn slots_of(&self, ids: impl Iterator<Item = KeyId>) -> Vec<Option<KeyId>> {
        let mut by_id: Option<HashMap<u32, KeyId>> = None;
        let slot = |id: KeyId| {
            if self
                .slots
                .get(id.index())
                .is_some_and(|slot| slot.progress.defined() == Some(id.0))
            {
                return Some(id);
            }
            let by_id = by_id.get_or_insert_with(|| {
                let all = (0..).map(KeyId).zip(&self.slots);
                all.filter_map(|(at, slot)| Some((slot.progress.defined()?, at)))
                    .collect()
            });
            by_id.get(&id.0).copied()
        };
        ids.map(slot).collect()
    }

    /// Applies a parent's acknowledgement.
    pub fn on_echo(&mut self, echo: Echo) {
        for sent in self.in_flight.merged_up_to(echo.covered) {
            if let Some(history) = history_of(&mut self.slots, sent) {
                history.last_parent.on_merged();
            }
        }
        for sent in self.in_flight.confirmed_up_to(echo.confirmed) {
            if let Some(history) = history_of(&mut self.slots, &sent) {
                history.confirmed = history.confirmed.merge(sent.counts);
            }
        }
    }

    /// The number of the last report on this stream; 0 before the first.
    pub const fn seq(&self) -> u64 {
        self.seq
    }
}

/// Returns the history of the key that `sent` belongs to; `None` if that key has left its slot.
fn history_of<'a>(slots: &'a mut [Slot], sent: &SentCounts) -> Option<&'a mut History> {
    let slot = slots.get_mut(sent.slot as usize);
    debug_assert!(slot.is_some(), "slots are never removed");
    slot.filter(|slot| slot.generation == sent.generation)?
        .progress
        .history_mut()
}

// === Keys that finish or move ===

impl Outbox {
    /// Returns true if exactly `tally` was sent of a key and the controller has confirmed all of it, so that
    /// another key may take the slot. O(1).
    pub fn is_settled(&self, id: KeyId, tally: Tally) -> bool {
        match self.history(id) {
            Some(history) => history.tally == tally && history.confirmed == tally.counts,
            None => tally == Tally::ZERO,
        }
    }

    /// Returns true if the controller has confirmed everything that was sent of a key, so that moving the key
    /// to another parent loses no count. O(1).
    pub fn is_confirmed(&self, id: KeyId) -> bool {
        self.history(id).is_none_or(History::is_confirmed)
    }

    /// Puts a new key, which counts from zero, into an empty slot or the slot of a finished key.
    ///
    /// Returns false and changes nothing while counts of the key are unconfirmed: a parent that has
    /// forgotten the key could not account for them anymore. The new key counts as one with a
    /// reused name, which is the safe choice: the owner does not remember whether the name was used
    /// before.
    pub fn replace(&mut self, id: KeyId) -> bool {
        let tally = self
            .history(id)
            .map_or(Tally::ZERO, |history| history.tally);
        let is_settled = self.is_settled(id, tally);
        if is_settled {
            self.adopt(id, Handover::REUSED_NAME);
        }
        is_settled
    }

    /// Releases a key: it is not reported anymore here, and later acknowledgements on this stream
    /// do not touch it. Returns `None` if the slot is empty; a slot that was never used counts as
    /// one with a new key.
    ///
    /// The slot itself stays. To drop slots that stay empty, make a new outbox and let it adopt the other
    /// keys.
    pub fn release(&mut self, id: KeyId) -> Option<Handover> {
        let history = self.slot(id).release()?;
        Some(Handover::new(history.map_parent(|ParentIndex(index)| {
            self.parents[index as usize]
        })))
    }

    /// Adopts a key: a key that another outbox released, or a new key that counts from zero. The
    /// caller gives it a slot that is empty or holds a finished key. The next report defines it.
    pub fn adopt(&mut self, id: KeyId, handover: Handover) {
        let history = handover
            .into_history()
            .map_parent(|parent| self.parent_index(parent));
        self.slot(id).adopt(history);
        self.has_undefined = true;
    }

    fn slot(&mut self, id: KeyId) -> &mut Slot {
        self.slots
            .resize((id.index() + 1).max(self.slots.len()), Slot::default());
        &mut self.slots[id.index()]
    }

    fn history(&self, id: KeyId) -> Option<&History> {
        self.slots.get(id.index())?.progress.history()
    }
}

// === Parents ===

impl Outbox {
    fn parent_index(&mut self, parent: InstanceId) -> ParentIndex {
        let known = self.parents.iter().position(|known| *known == parent);
        let index = known.unwrap_or_else(|| {
            self.parents.push(parent);
            self.parents.len() - 1
        });
        ParentIndex(index as u32)
    }

    /// Forgets the parents that no key refers to. Linear in the keys.
    fn forget_unused_parents(&mut self) {
        let mut is_used = vec![false; self.parents.len()];
        for ParentIndex(index) in self.slots.iter().filter_map(last_parent) {
            is_used[index as usize] = true;
        }
        if !is_used.contains(&false) {
            return;
        }
        let mut moved_to = vec![ParentIndex(0); is_used.len()];
        let mut kept = Vec::new();
        for (index, parent) in self
            .parents
            .drain(..)
            .enumerate()
            .filter(|(index, _)| is_used[*index])
        {
            moved_to[index] = ParentIndex(kept.len() as u32);
            kept.push(parent);
        }
        self.parents = kept;
        for history in self
            .slots
            .iter_mut()
            .filter_map(|slot| slot.progress.history_mut())
        {
            *history = history.map_parent(|ParentIndex(index)| moved_to[index as usize]);
        }
    }
}

fn last_parent(slot: &Slot) -> Option<ParentIndex> {
    slot.progress.history()?.last_parent.parent()
}
