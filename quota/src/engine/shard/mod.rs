//! The buckets of one shard in memory: a table over slots, a list of changed slots, and eviction. A change is saved once
//! a commit has it in the log, and settled once its row is in the store, so that the log can drop that commit.

mod entry;
pub(super) mod place;
#[cfg(test)]
mod tests;

pub(super) use entry::Entry;
use entry::Settled;

use hashbrown::HashTable;

use crate::store::{Rows, State};
use place::Place;

/// A bucket's place in the table.
const PLACE_BYTES: usize = 12;
/// The allocation overhead of a key.
const KEY_OVERHEAD_BYTES: usize = 16;
/// Bytes of a bucket in memory without its key; a fourth of the slots is spare capacity.
const SLOT_BYTES: usize = size_of::<Entry>() * 5 / 4 + PLACE_BYTES + KEY_OVERHEAD_BYTES;

#[derive(Debug)]
pub(super) struct Shard {
    table: HashTable<u32>,
    slots: Vec<Entry>,
    free: Vec<u32>,
    /// Slots for the next commit, whose number is `commit`.
    changed: Vec<u32>,
    /// Slots whose rows in the store are older than their state, except those that are being settled.
    /// A slot may be in it more than once after a failed write.
    unsettled: Vec<u32>,
    commit: u64,
    bytes: usize,
    bytes_max: usize,
    /// Slot where the next eviction search starts.
    hand: usize,
    /// Progress at which a search found no bucket to evict: until more is saved none is found.
    full_at: Option<Saved>,
    /// Buckets evicted so far. A row is read again if this has changed meanwhile: it may be old.
    pub(super) evictions: u64,
}

/// Progress of saving: the last commit on disk, and the number of attempts to settle a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Saved {
    pub(super) commit: u64,
    pub(super) settlings: u64,
}

/// Error of a shard without a bucket to evict: some must be saved and settled first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Shard {
    pub(super) fn new(bytes_max: usize, commit: u64) -> Self {
        Self {
            table: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
            changed: Vec::new(),
            unsettled: Vec::new(),
            commit,
            bytes: 0,
            bytes_max,
            hand: 0,
            full_at: None,
            evictions: 0,
        }
    }

    pub(super) fn find(&self, Place { hash, key, .. }: &Place) -> Option<u32> {
        let is_it = |&slot: &u32| self.entry(slot).is_some_and(|entry| *entry.key == **key);
        self.table.find(*hash, is_it).copied()
    }

    pub(super) fn entry(&self, slot: u32) -> Option<&Entry> {
        self.slots.get(slot as usize)
    }

    pub(super) fn entry_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        self.slots.get_mut(slot as usize)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().filter(|entry| !entry.is_free())
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a bucket as it is on disk, and evicts saved and settled buckets for it.
    pub(super) fn insert(
        &mut self,
        Place { hash, key, .. }: &Place,
        state: Option<State>,
        saved: Saved,
    ) -> Result<u32, Full> {
        let hash = *hash;
        let bytes = SLOT_BYTES + key.len();
        while self.bytes + bytes > self.bytes_max && self.len() > 0 {
            self.evict(saved)?;
        }
        self.bytes += bytes;
        let entry = Entry::new(key, hash, state);
        let slot = match self.free.pop() {
            Some(slot) => {
                if let Some(free) = self.slots.get_mut(slot as usize) {
                    *free = entry;
                }
                slot
            }
            None => {
                if self.slots.len() == self.slots.capacity() {
                    self.slots.reserve_exact(self.slots.len() / 4 + 16);
                }
                self.slots.push(entry);
                (self.slots.len() - 1) as u32
            }
        };
        let slots = &self.slots;
        self.table.insert_unique(hash, slot, |&slot| {
            slots.get(slot as usize).map_or(0, |entry| entry.hash)
        });
        Ok(slot)
    }

    /// Evicts a saved and settled bucket that was not used since the hand last passed it.
    fn evict(&mut self, saved: Saved) -> Result<(), Full> {
        if self.full_at == Some(saved) {
            return Err(Full);
        }
        for _ in 0..2 * self.slots.len() {
            self.hand = (self.hand + 1) % self.slots.len();
            let Some(entry) = self.slots.get_mut(self.hand) else {
                continue;
            };
            if entry.is_free() || entry.commit > saved.commit || entry.settled != Settled::Yes {
                continue;
            }
            if std::mem::take(&mut entry.is_used) {
                continue;
            }
            let slot = self.hand as u32;
            if let Ok(place) = self.table.find_entry(entry.hash, |&other| other == slot) {
                place.remove();
            }
            self.bytes -= SLOT_BYTES + entry.key.len();
            *entry = Entry::new(&[], 0, None);
            self.free.push(slot);
            self.evictions += 1;
            return Ok(());
        }
        self.full_at = Some(saved);
        Err(Full)
    }

    /// Marks a slot to be saved and settled, and returns the number of the commit that saves it.
    pub(super) fn set_changed(&mut self, slot: u32) -> u64 {
        if let Some(entry) = self.slots.get_mut(slot as usize) {
            if entry.commit != self.commit {
                entry.commit = self.commit;
                self.changed.push(slot);
            }
            entry.want_settled(slot, &mut self.unsettled);
        }
        self.commit
    }

    /// Moves the changed rows into commit `number`, and their slots into `gathered`. Later changes
    /// are for the next commit.
    pub(super) fn gather(&mut self, number: u64, rows: &mut Rows, gathered: &mut Vec<u32>) {
        self.commit = number + 1;
        for &slot in &self.changed {
            if let Some(entry) = self.slots.get_mut(slot as usize) {
                entry.logged = number;
                rows.push(&entry.key, entry.row().as_ref());
            }
        }
        gathered.append(&mut self.changed);
    }

    /// Marks a slot for the next commit because commit `number` failed. A slot that changed since is in the next commit
    /// already.
    pub(super) fn put_back(&mut self, number: u64, slot: u32) {
        if self.entry(slot).is_some_and(|entry| entry.commit <= number) {
            self.set_changed(slot);
        }
    }

    /// Marks all slots of the next commit to be settled again: a store that was opened again after a failure has older
    /// rows.
    pub(super) fn unsettle_changed(&mut self) {
        for &slot in &self.changed {
            if let Some(entry) = self.slots.get_mut(slot as usize) {
                entry.want_settled(slot, &mut self.unsettled);
            }
        }
    }

    /// Returns the slots that must be settled before the log drops the commits up to `up_to`. Skips slots that a later
    /// commit up to `durable`, which is on disk, contains: the log still has their rows. Each slot must be handed to
    /// [`Shard::fail_settling`] or [`Shard::end_settling`].
    pub(super) fn take_unsettled(&mut self, up_to: u64, durable: u64) -> Vec<u32> {
        let Self {
            unsettled, slots, ..
        } = self;
        let is_later = |slot: u32| {
            slots
                .get(slot as usize)
                .is_some_and(|it| it.logged > up_to && it.logged <= durable)
        };
        unsettled.extract_if(.., |slot| !is_later(*slot)).collect()
    }

    /// Adds the rows of those of these slots that are not being settled, which must be written next.
    pub(super) fn begin_settling(&mut self, slots: &[u32], rows: &mut Rows) {
        for &slot in slots {
            // A bucket is not evicted before it is settled, so an unsettled slot is still of the same one.
            if let Some(entry) = self
                .slots
                .get_mut(slot as usize)
                .filter(|entry| entry.settled == Settled::No)
            {
                entry.settled = Settled::UnderWay;
                rows.push(&entry.key, entry.row().as_ref());
            }
        }
    }

    /// Notes that the rows of these slots are written. Slots that changed since are to be settled
    /// again.
    pub(super) fn end_settling(&mut self, slots: &[u32]) {
        for &slot in slots {
            if let Some(entry) = self.slots.get_mut(slot as usize)
                && entry.settled == Settled::UnderWay
            {
                entry.settled = Settled::Yes;
            }
        }
    }

    /// Notes that the rows of these slots are not written.
    pub(super) fn fail_settling(&mut self, slots: &[u32]) {
        for &slot in slots {
            if let Some(entry) = self.slots.get_mut(slot as usize)
                && entry.settled != Settled::Yes
            {
                entry.settled = Settled::No;
                self.unsettled.push(slot);
            }
        }
    }
}
