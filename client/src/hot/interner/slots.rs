//! The index of an interner: a table of fingerprints. A lookup finds a name's id and directive with
//! one memory access.
//!
//! A slot holds the fingerprint of a name, which is its keyed hash, and the [`KeyWord`] of its id.
//! Names are not compared: two names with one fingerprint would share an id, its counts and its
//! directive while the process runs. A fingerprint has 62 bits that differ between processes, so
//! among 10,000 names that happens in one process of 10^11, and a caller cannot choose such names.
//!
//! Names stay where they are, so that handles can refer to slots. One writer at a time changes
//! fingerprints (the caller holds the interner's lock). Words are also published without it, and
//! readers never wait.

use crate::hot::directive_word::KeyWord;
use crate::hot::sync::{AtomicU32, AtomicU64, Ordering, zeroed};

/// The farthest place of a name from its home. At most half of the slots hold a name, so hardly any is this
/// far.
const DISTANCE_MAX: u32 = 63;
/// A slot that never had a name. Every probe ends here.
const EMPTY: u64 = 0;
/// A slot that lost its name: probes continue behind it, and the next name may take it.
const VACANT: u64 = 2;
/// The bit that a fingerprint has while lookups find it.
const LIVE: u64 = 1;
/// The bits that every hash gets, so that a fingerprint differs from both marks with [`LIVE`] and without.
const FINGERPRINT: u64 = 4 | LIVE;

/// A fingerprint, and the word of the id that has it.
type Slot = [AtomicU64; 2];

/// The slots of an interner. A slot is 16 bytes: four of them share a cache line.
pub(crate) struct Slots {
    slots: Vec<Slot>,
    /// Maximum distance of a name from its home. A probe for an absent name ends there once all
    /// slots have had names.
    pub(super) farthest: AtomicU32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Live(u32),
    Tombstone(u32),
    Absent(u32),
    NoRoom,
}

impl Slots {
    /// Makes empty slots for `ids` names, at least twice as many.
    pub(crate) fn new(ids: usize) -> Self {
        Self {
            slots: zeroed(Self::slots_for(ids)),
            farthest: AtomicU32::new(0),
        }
    }

    /// Returns the number of slots for `ids` names: a power of two, from two to four for each.
    pub(crate) const fn slots_for(ids: usize) -> usize {
        (ids * 2).next_power_of_two()
    }

    /// Returns the index of a place. Places continue at the start after the last slot.
    #[inline(always)]
    fn mask(&self, place: u32) -> usize {
        place as usize & (self.slots.len() - 1)
    }

    #[inline(always)]
    fn at(&self, place: u32) -> &Slot {
        &self.slots[self.mask(place)]
    }

    #[inline(always)]
    pub(crate) fn find(&self, hash: u64) -> Option<KeyWord> {
        let mut distance = 0;
        loop {
            let [fingerprint, word] = self.at((hash as u32).wrapping_add(distance));
            let seen = fingerprint.load(Ordering::Acquire);
            if seen == hash | FINGERPRINT {
                // The slot may lose its name between the two loads, but it gets another one only after the
                // decisions under way have ended.
                return Some(KeyWord::load(word));
            }
            if seen == EMPTY || distance == self.farthest.load(Ordering::Relaxed) {
                return None;
            }
            distance += 1;
        }
    }

    /// Returns the slot of a name, or the slot that it can be put into. Under the interner's lock.
    pub(crate) fn place(&self, hash: u64) -> Found {
        let mut absent = Found::NoRoom;
        for distance in 0..=DISTANCE_MAX {
            let slot = self.mask((hash as u32).wrapping_add(distance)) as u32;
            let seen = self.at(slot)[0].load(Ordering::Relaxed);
            match seen {
                EMPTY | VACANT if absent == Found::NoRoom => absent = Found::Absent(slot),
                _ if seen == hash | FINGERPRINT => return Found::Live(slot),
                _ if seen == (hash | FINGERPRINT) & !LIVE => return Found::Tombstone(slot),
                _ => {}
            }
            if seen == EMPTY {
                break;
            }
        }
        absent
    }

    #[inline]
    pub(crate) fn word(&self, slot: u32) -> KeyWord {
        self.slots
            .get(slot as usize)
            .map_or(KeyWord::default(), |[_, word]| KeyWord::load(word))
    }

    pub(crate) fn set_word(&self, slot: u32, word: KeyWord) {
        word.store(&self.at(slot)[1]);
    }

    /// Fills a slot that is [absent](Found::Absent). A reader that finds the name sees its word.
    pub(crate) fn fill(&self, slot: u32, hash: u64, word: KeyWord) {
        let distance = self.mask(slot.wrapping_sub(hash as u32)) as u32;
        self.farthest.fetch_max(distance, Ordering::Relaxed);
        self.set_word(slot, word);
        self.at(slot)[0].store(hash | FINGERPRINT, Ordering::Release);
    }

    pub(crate) fn set_live(&self, slot: u32, live: bool) {
        let fingerprint = &self.at(slot)[0];
        let dead = fingerprint.load(Ordering::Relaxed) & !LIVE;
        fingerprint.store(if live { dead | LIVE } else { dead }, Ordering::Release);
    }

    pub(crate) fn vacate(&self, slot: u32) {
        self.at(slot)[0].store(VACANT, Ordering::Relaxed);
    }
}
