//! Names to dense ids, found and given without waiting, an allocation or a system call, and taken back from names that
//! nobody asks for any more.
//!
//! Everything is allocated at the start and all of it is atomics in safe code. A name is found by reading: its hash
//! leads to a slot of the index, the slot to a record, and the record holds the very name. Whoever changes anything
//! holds the claim, which nobody on the request path waits for; it fills the record first and publishes its slot with
//! one release store, so that whoever finds the slot sees the name whole.
//!
//! **The life of an id.** It waits in line; a new name takes it; when the name is idle it is laid to
//! [rest](Names::rest), and is no longer found. A name that is asked for again wakes with the id it had. Only when the
//! owner of the table [offers](Names::offer) the id, once nothing of it is in the air, does it stand in line again, and
//! until another name takes it the old one may still wake. So a name never has two ids at a time.

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

use crate::interner::frequency::{Sketch, Waiting};
use crate::hot::sync::{AtomicBool, AtomicU32, Ordering, zeroed};

use free_list::Line;
use records::Records;

/// How far from where its hash leads a name may stand. The index is at most half full, so hardly any is 64 away.
const PROBES_MAX: usize = 64;
/// While fewer than half of the ids are free, a name gets one only when it was asked for so often in about a second.
const OFTEN: u32 = 8;
/// Ids in line that were woken since they were offered are passed over, so many at a time.
const SKIPS_MAX: usize = 64;
const EMPTY: u32 = 0;

/// The state of an id: how many handles hold on to it, and two flags. All zero for one that was never given out.
const PINS: u32 = (1 << 30) - 1;
/// It is given out, and not offered.
const GIVEN: u32 = 1 << 30;
/// It does not stand in line.
const OUT_OF_LINE: u32 = 1 << 31;

/// A table of (owner, name) pairs, bounded by the number of its ids.
#[derive(Debug)]
pub(crate) struct Names {
    seed: u64,
    ids: u32,
    /// A slot has a tag from the hash above the bits of this mask, and the id plus one below.
    mask: u32,
    slots: Vec<AtomicU32>,
    records: Records,
    states: Vec<AtomicU32>,
    line: Line,
    /// The line of ids whose present name takes a cell.
    long_line: Line,
    free: AtomicU32,
    sketch: Sketch,
    claimed: AtomicBool,
}

/// What a look-up found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The id of the name.
    Id(u32),
    /// The name is new, and another thread is entering one this very moment.
    Busy,
    /// Ids are scarce, and the name was not asked for often enough lately.
    Rare,
    /// There is no room left.
    Full,
    /// It is no name.
    Invalid,
}

/// How much room there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Ids in all.
    pub(crate) ids: u32,
    /// Ids that no name has, or may lose the moment another one needs them.
    pub(crate) free: u32,
}

impl Names {
    /// Room for `ids` names, at most 2^24, of which one in eight may be longer than 56 bytes. `seed` must differ between
    /// processes, lest names be crafted to collide.
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
            line: Line::of_all(ids),
            long_line: Line::empty(Records::cells_for(ids)),
            free: AtomicU32::new(ids as u32),
            sketch: Sketch::new(ids),
            claimed: AtomicBool::new(false),
        }
    }

    fn slots_for(ids: usize) -> usize {
        (ids * 2).next_power_of_two()
    }

    /// The bytes that a table for `ids` names takes. For each id: 64 for its record, 10 for its share of a cell, 4 for
    /// its state, 4.5 for its place in line, 8 to 16 for the index and, up to 65,536, 4 to 8 to count the names that
    /// wait.
    #[cfg(test)]
    #[cfg(not(feature = "loom"))]
    pub(crate) fn bytes_for(ids: usize) -> usize {
        let cells = Records::cells_for(ids);
        ids * (64 + 4 + 4) + cells * (80 + 4) + Self::slots_for(ids) * 4 + Sketch::entries_for(ids) * 4
    }

    /// The id of `name` under `owner`, on the request path. A new name is given one at once while half of the ids are
    /// free, and after that when it was asked for often enough lately. A name that is found needs no check of its
    /// letters: what is stored was checked.
    #[inline]
    pub(crate) fn look_up(&self, owner: u32, name: &str) -> Found {
        let name = name.as_bytes();
        if name.len() > NAME_BYTES_MAX {
            return Found::Invalid;
        }
        let hash = self.hash(owner, name);
        match self.find(hash, owner, name) {
            Some(id) => Found::Id(id),
            None => self.meet(hash, owner, name),
        }
    }

    /// The bucket is mixed in by the seed, which costs one multiplication beside the loads of the name.
    #[inline]
    fn hash(&self, owner: u32, name: &[u8]) -> u64 {
        let seed = self.seed ^ u64::from(owner).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut hasher = FixedState::with_seed(seed).build_hasher();
        hasher.write(name);
        hasher.finish()
    }

    /// The tag of a hash, in its place.
    #[inline]
    fn tag(&self, hash: u64) -> u32 {
        (hash >> 32) as u32 & !self.mask
    }

    /// As [`find`](Self::find), where it may take a call.
    #[inline(never)]
    fn search(&self, hash: u64, owner: u32, name: &[u8]) -> Option<u32> {
        self.find(hash, owner, name)
    }

    // Inlined into the request path alone: a call and its saved registers are a fifth of a look-up.
    #[inline(always)]
    fn find(&self, hash: u64, owner: u32, name: &[u8]) -> Option<u32> {
        let tag = self.tag(hash);
        for at in 0..PROBES_MAX {
            let seen = self.slot(hash, at).load(Ordering::Acquire);
            // What is left of another tag, or of an empty slot, is no id of this table.
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

    /// A name that was not found.
    #[cold]
    #[inline(never)]
    fn meet(&self, hash: u64, owner: u32, name: &[u8]) -> Found {
        // It may have moved under the search.
        if let Some(id) = self.search(hash, owner, name) {
            return Found::Id(id);
        }
        if !is_name(name) {
            return Found::Invalid;
        }
        let free = self.free.load(Ordering::Relaxed);
        let scarce = free < self.ids.div_ceil(2);
        // Who waits for an id is counted even when there is none: it says who should have the next one.
        if scarce && self.sketch.count(hash) < OFTEN {
            return Found::Rare;
        }
        if free == 0 {
            return Found::Full;
        }
        let Some(_claim) = self.try_claim() else { return Found::Busy };
        match self.enter(hash, owner, name) {
            Some(id) => {
                if scarce {
                    self.sketch.forget(hash);
                }
                Found::Id(id)
            }
            None => Found::Full,
        }
    }

    /// The id of `name`, off the request path: given now as long as there is any. `None` when there is none, or it is no
    /// name.
    pub(crate) fn intern(&self, owner: u32, name: &str) -> Option<u32> {
        let name = is_name(name.as_bytes()).then_some(name.as_bytes())?;
        let hash = self.hash(owner, name);
        self.search(hash, owner, name).or_else(|| {
            let _claim = self.claim();
            self.enter(hash, owner, name)
        })
    }

    /// The id of `name` under `owner`, if it has one.
    pub(crate) fn known(&self, owner: u32, name: &str) -> Option<u32> {
        self.find(self.hash(owner, name.as_bytes()), owner, name.as_bytes())
    }

    /// As [`intern`](Self::intern), but while fewer than half of the ids are free only what is awake has one: for names
    /// that nobody may ever ask for.
    pub(crate) fn intern_sparingly(&self, owner: u32, name: &str) -> Option<u32> {
        if self.free.load(Ordering::Relaxed) >= self.ids.div_ceil(2) {
            return self.intern(owner, name);
        }
        let name = is_name(name.as_bytes()).then_some(name.as_bytes())?;
        self.search(self.hash(owner, name), owner, name)
    }

    /// As [`intern`](Self::intern); the name keeps its id until it is [unpinned](Self::unpin) as often as it was pinned.
    pub(crate) fn pin(&self, owner: u32, name: &str) -> Option<u32> {
        let _claim = is_name(name.as_bytes()).then(|| self.claim())?;
        self.enter_pinned(owner, name)
    }

    /// As [`pin`](Self::pin), on the request path: does not wait.
    pub(crate) fn try_pin(&self, owner: u32, name: &str) -> Found {
        if !is_name(name.as_bytes()) {
            return Found::Invalid;
        }
        let Some(_claim) = self.try_claim() else { return Found::Busy };
        self.enter_pinned(owner, name).map_or(Found::Full, Found::Id)
    }

    fn enter_pinned(&self, owner: u32, name: &str) -> Option<u32> {
        let id = self.enter(self.hash(owner, name.as_bytes()), owner, name.as_bytes())?;
        self.pin_again(id);
        Some(id)
    }

    /// Pins an id once more that is pinned already.
    pub(crate) fn pin_again(&self, id: u32) {
        if let Some(state) = self.states.get(id as usize) {
            state.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes one pin away.
    pub(crate) fn unpin(&self, id: u32) {
        if let Some(state) = self.states.get(id as usize) {
            state.fetch_sub(1, Ordering::Release);
        }
    }

    /// The next id that a name took since the last call, in the order they were taken, where `heed` says true; false
    /// leaves it for the next call. An id that was only passed over appears as well. One caller at a time, who alone
    /// rests and offers ids, so that what it learns holds until it offers the id.
    pub(crate) fn entered(&self, mut heed: impl FnMut(u32) -> bool) {
        for line in [&self.line, &self.long_line] {
            while let Some(id) = line.unread() {
                if !self.is_resting(id) && !heed(id) {
                    break;
                }
                line.read();
            }
        }
    }

    /// The owner and the name of an id that was [entered](Self::entered).
    pub(crate) fn read(&self, id: u32) -> Option<(u32, String)> {
        let record = self.records.read(id)?;
        Some((record.owner, String::from_utf8(record.name().to_vec()).ok()?))
    }

    /// How much room there is.
    pub(crate) fn room(&self) -> Room {
        Room { ids: self.ids, free: self.free.load(Ordering::Relaxed) }
    }

    /// A second has passed: the names that wait for an id are forgotten by half. Says what they were. Off the request
    /// path; linear in the ids.
    pub(crate) fn halve(&self) -> Waiting {
        self.sketch.halve()
    }
}

fn is_name(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok_and(|name| check_name(name).is_ok())
}
