//! The interner: maps names to dense ids without waiting, allocating or making a system call, and reuses the
//! ids of idle names.
//!
//! Everything is allocated at the start and consists of atomics in safe code. A lookup only reads: the hash
//! leads to a slot of the index, the slot to a record, and the record holds the name. A writer holds the
//! write lock, for which the request path never waits. It fills the record first and publishes the slot with
//! one release store, so that a reader that finds the slot sees the whole name.
//!
//! **The life of an id.** It waits in the free list until a new name takes it. An idle name is
//! [tombstoned](Interner::tombstone): lookups miss it, and inserting it again revives it with its id. Once no
//! thread can still count for the id, the owner of the table [releases](Interner::release) it to the free
//! list; until another name takes it, the old name can still be revived. So a name never has two ids at a
//! time.

mod changes;
pub(crate) mod eviction;
mod free_list;
pub(crate) mod frequency;
pub(crate) mod key_registry;
#[cfg(feature = "loom")]
#[cfg(test)]
mod loom;
pub(crate) mod pin;
mod records;
#[cfg(not(feature = "loom"))]
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use plimsoll_core::names::{NAME_BYTES_MAX, check_name};

use crate::hot::sync::{AtomicBool, AtomicU32, Ordering, zeroed};
use crate::interner::frequency::{Sketch, WaitingNames};

use free_list::FreeList;
use records::Records;

/// The longest probe. The index is at most half full, so hardly any name is 64 slots away from its home.
const PROBES_MAX: usize = 64;
/// Requests in about a second from which on a name gets an id while fewer than half of the ids are free.
const OFTEN: u32 = 8;
/// The largest number of revived ids in the free list that one insertion skips.
const SKIPS_MAX: usize = 64;
const EMPTY: u32 = 0;

/// The low bits of an id's state: the number of handles that pin it. Zero, like both flags, for an id that
/// was never used.
const PINS: u32 = (1 << 30) - 1;
/// Flag of an id that a name has, and that is not released.
const ASSIGNED: u32 = 1 << 30;
/// Flag of an id that is not in the free list.
const DEQUEUED: u32 = 1 << 31;

/// An interner of (owner, name) pairs with a fixed number of ids.
#[derive(Debug)]
pub(crate) struct Interner {
    seed: u64,
    ids: u32,
    /// The bits of a slot that hold the id plus one; the others hold a tag from the hash.
    mask: u32,
    slots: Vec<AtomicU32>,
    records: Records,
    states: Vec<AtomicU32>,
    free_list: FreeList,
    /// The free list of ids whose last name occupies an overflow cell.
    free_long: FreeList,
    free: AtomicU32,
    sketch: Sketch,
    is_locked: AtomicBool,
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// The id of the name.
    Id(u32),
    /// The name is new, and another thread holds the write lock.
    Busy,
    /// Ids are scarce, and the name is not frequent enough.
    Rare,
    /// No id is free.
    Full,
    /// The name is invalid.
    Invalid,
}

/// The number of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capacity {
    /// All ids.
    pub(crate) ids: u32,
    /// Ids without a name, and released ids whose name can still be revived.
    pub(crate) free: u32,
}

impl Interner {
    /// Makes an interner for `ids` names, at most 2^24, of which one in eight may be longer than 56 bytes.
    /// `seed` must differ between processes, so that callers cannot choose names that collide.
    pub(crate) fn new(ids: usize, seed: u64) -> Self {
        let ids = ids.clamp(1, 1 << 24);
        let bits = u32::BITS - (ids as u32 + 1).leading_zeros();
        Self {
            seed,
            ids: ids as u32,
            mask: (1 << bits) - 1,
            slots: zeroed(Self::slots_for(ids)),
            records: Records::new(ids),
            states: zeroed(ids),
            free_list: FreeList::of_all(ids),
            free_long: FreeList::empty(Records::cells_for(ids)),
            free: AtomicU32::new(ids as u32),
            sketch: Sketch::new(frequency::slots_for(ids)),
            is_locked: AtomicBool::new(false),
        }
    }

    fn slots_for(ids: usize) -> usize {
        (ids * 2).next_power_of_two()
    }

    /// Returns the bytes of an interner for `ids` names. For each id: 64 for its record, 10 for its share of
    /// an overflow cell, 4 for its state, 4.5 for the free lists, 8 to 16 for the index and, up to 65,536
    /// ids, 4 to 8 for the sketch.
    #[cfg(test)]
    #[cfg(not(feature = "loom"))]
    pub(crate) fn bytes_for(ids: usize) -> usize {
        let cells = Records::cells_for(ids);
        ids * (64 + 4 + 4) + cells * (80 + 4) + Self::slots_for(ids) * 4 + frequency::slots_for(ids) * 4
    }

    /// Looks up the id of `name` under `owner`, on the request path. A new name gets an id at once while half
    /// of the ids are free, and after that only if it is frequent. A name that is found needs no validation:
    /// stored names are valid.
    #[inline]
    pub(crate) fn look_up(&self, owner: u32, name: &str) -> Lookup {
        let name = name.as_bytes();
        if name.len() > NAME_BYTES_MAX {
            return Lookup::Invalid;
        }
        let hash = self.hash(owner, name);
        match self.find(hash, owner, name) {
            Some(id) => Lookup::Id(id),
            None => self.insert_new(hash, owner, name),
        }
    }

    /// Hashes a name. The owner is mixed into the seed, which costs one multiplication beside the loads of
    /// the name.
    #[inline]
    fn hash(&self, owner: u32, name: &[u8]) -> u64 {
        let seed = self.seed ^ u64::from(owner).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut hasher = FixedState::with_seed(seed).build_hasher();
        hasher.write(name);
        hasher.finish()
    }

    /// Returns the tag of a hash, in its place within a slot.
    #[inline]
    fn tag(&self, hash: u64) -> u32 {
        (hash >> 32) as u32 & !self.mask
    }

    /// Finds a name off the request path, without inlining.
    #[inline(never)]
    fn search(&self, hash: u64, owner: u32, name: &[u8]) -> Option<u32> {
        self.find(hash, owner, name)
    }

    // Inlined only into the request path: a call with its saved registers is a fifth of a lookup.
    #[inline(always)]
    fn find(&self, hash: u64, owner: u32, name: &[u8]) -> Option<u32> {
        let tag = self.tag(hash);
        for at in 0..PROBES_MAX {
            let seen = self.slot(hash, at).load(Ordering::Acquire);
            // Another tag, or an empty slot, yields a number above all ids.
            let id = (seen ^ tag).wrapping_sub(1);
            if self.records.is(id, owner, name) {
                return Some(id);
            }
            if seen == EMPTY {
                return None;
            }
        }
        None
    }

    #[inline]
    fn slot(&self, hash: u64, at: usize) -> &AtomicU32 {
        &self.slots[(hash as usize).wrapping_add(at) & (self.slots.len() - 1)]
    }

    /// Inserts a name that a lookup missed, if it may have an id.
    #[cold]
    #[inline(never)]
    fn insert_new(&self, hash: u64, owner: u32, name: &[u8]) -> Lookup {
        // A concurrent removal may have moved the name during the lookup.
        if let Some(id) = self.search(hash, owner, name) {
            return Lookup::Id(id);
        }
        if !is_name(name) {
            return Lookup::Invalid;
        }
        let free = self.free.load(Ordering::Relaxed);
        let scarce = free < self.ids.div_ceil(2);
        // A waiting name is counted even when no id is free, to decide which name gets the next one.
        if scarce && self.sketch.add(hash, 1) < OFTEN {
            return Lookup::Rare;
        }
        if free == 0 {
            return Lookup::Full;
        }
        let Some(_lock) = self.try_lock() else { return Lookup::Busy };
        match self.insert(hash, owner, name) {
            Some(id) => {
                if scarce {
                    self.sketch.remove(hash);
                }
                Lookup::Id(id)
            }
            None => Lookup::Full,
        }
    }

    /// Returns the id of `name`, off the request path; a new name gets one as long as any is free. `None`
    /// when none is free, or the name is invalid.
    pub(crate) fn intern(&self, owner: u32, name: &str) -> Option<u32> {
        let name = is_name(name.as_bytes()).then_some(name.as_bytes())?;
        let hash = self.hash(owner, name);
        self.search(hash, owner, name).or_else(|| {
            let _lock = self.lock();
            self.insert(hash, owner, name)
        })
    }

    /// Returns the id of `name` under `owner`, if it has one.
    pub(crate) fn known(&self, owner: u32, name: &str) -> Option<u32> {
        self.find(self.hash(owner, name.as_bytes()), owner, name.as_bytes())
    }

    /// Interns like [`intern`](Self::intern), but while fewer than half of the ids are free, finds existing
    /// names only: for names that may never receive a request.
    pub(crate) fn intern_if_roomy(&self, owner: u32, name: &str) -> Option<u32> {
        if self.free.load(Ordering::Relaxed) >= self.ids.div_ceil(2) {
            return self.intern(owner, name);
        }
        let name = is_name(name.as_bytes()).then_some(name.as_bytes())?;
        self.search(self.hash(owner, name), owner, name)
    }

    /// Interns a name and pins it: it is not tombstoned until it is [unpinned](Self::unpin) as often as it
    /// was pinned.
    pub(crate) fn pin(&self, owner: u32, name: &str) -> Option<u32> {
        let _lock = is_name(name.as_bytes()).then(|| self.lock())?;
        self.insert_pinned(owner, name)
    }

    /// Pins like [`pin`](Self::pin), on the request path: does not wait.
    pub(crate) fn try_pin(&self, owner: u32, name: &str) -> Lookup {
        if !is_name(name.as_bytes()) {
            return Lookup::Invalid;
        }
        let Some(_lock) = self.try_lock() else { return Lookup::Busy };
        self.insert_pinned(owner, name).map_or(Lookup::Full, Lookup::Id)
    }

    fn insert_pinned(&self, owner: u32, name: &str) -> Option<u32> {
        let id = self.insert(self.hash(owner, name.as_bytes()), owner, name.as_bytes())?;
        self.pin_again(id);
        Some(id)
    }

    /// Pins an id that is pinned already.
    pub(crate) fn pin_again(&self, id: u32) {
        debug_assert!(id < self.ids, "id {id} was never assigned");
        if let Some(state) = self.states.get(id as usize) {
            state.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes a pin.
    pub(crate) fn unpin(&self, id: u32) {
        debug_assert!(id < self.ids, "id {id} was never assigned");
        if let Some(state) = self.states.get(id as usize) {
            state.fetch_sub(1, Ordering::Release);
        }
    }

    /// Passes each id that was taken since the last call to `accept`, in order; false keeps it for the next
    /// call, and ends this one for its free list. Revived ids that an insertion skipped appear as well. Only
    /// one caller at a time, the one that tombstones and releases ids, so that an id keeps its name until
    /// that caller releases it.
    pub(crate) fn drain_inserted(&self, mut accept: impl FnMut(u32) -> bool) {
        for list in [&self.free_list, &self.free_long] {
            while let Some(id) = list.next_unread() {
                if !self.is_tombstone(id) && !accept(id) {
                    break;
                }
                list.mark_read();
            }
        }
    }

    /// Returns the owner and the name of an id from [`drain_inserted`](Self::drain_inserted).
    pub(crate) fn read(&self, id: u32) -> Option<(u32, String)> {
        let record = self.records.read(id)?;
        Some((record.owner, String::from_utf8(record.name().to_vec()).ok()?))
    }

    /// Returns the number of ids, and of free ones.
    pub(crate) fn capacity(&self) -> Capacity {
        Capacity { ids: self.ids, free: self.free.load(Ordering::Relaxed) }
    }

    /// Halves the counts of the names that wait for an id, once a second; returns the counts before. Off the
    /// request path; linear in the ids.
    pub(crate) fn decay_waiting(&self) -> WaitingNames {
        frequency::decay(&self.sketch)
    }
}

fn is_name(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok_and(|name| check_name(name).is_ok())
}
