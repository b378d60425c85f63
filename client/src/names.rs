//! Names to dense ids, found and given without a lock, an allocation or a system call.
//!
//! The table only grows: everything it will ever need is allocated when it is made, so a name seen for the first
//! time on the request path finds its place without asking the system for anything. All of it is atomics in safe
//! code: a slot is claimed with one compare-and-swap, filled, and published with one release store; whoever acquires
//! the published slot sees the name whole.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use foldhash::quality::FixedState;
use plimsoll_core::bucket::NAME_BYTES_MAX;

/// Bytes kept for each name on average: tenant names are rarely longer.
const BYTES_PER_NAME: usize = 48;

/// The low half of a slot: empty, being filled, given up, or an id plus one.
const EMPTY: u64 = 0;
const CLAIMED: u32 = u32::MAX;
const BURNT: u32 = u32::MAX - 1;

/// An append-only table of (owner, name) pairs, bounded in names and in bytes.
#[derive(Debug)]
pub(crate) struct Names {
    hasher: FixedState,
    slots: Box<[AtomicU64]>,
    entries: Box<[Entry]>,
    bytes: Box<[AtomicU64]>,
    entries_used: AtomicUsize,
    words_used: AtomicUsize,
}

#[derive(Debug, Default)]
struct Entry {
    owner: AtomicU32,
    /// First word and length of the name; 0 until the entry is published.
    place: AtomicU64,
}

/// What a look-up found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The id of the name.
    Id(u32),
    /// The name is being entered by another thread this very moment.
    Busy,
    /// There is no room left.
    Full,
}

impl Names {
    /// Room for `names_max` names. `seed` must differ between processes, lest names be crafted to collide.
    pub(crate) fn new(names_max: usize, seed: u64) -> Self {
        let names_max = names_max.min((BURNT - 1) as usize);
        let words = (names_max * BYTES_PER_NAME).max(NAME_BYTES_MAX) / 8;
        Self {
            hasher: FixedState::with_seed(seed),
            slots: (0..(names_max * 2).next_power_of_two().max(8)).map(|_| AtomicU64::new(EMPTY)).collect(),
            entries: (0..names_max).map(|_| Entry::default()).collect(),
            bytes: (0..words).map(|_| AtomicU64::new(0)).collect(),
            entries_used: AtomicUsize::new(0),
            words_used: AtomicUsize::new(0),
        }
    }

    /// The id of `name` under `owner`, given now if it is new. `name` obeys the rule of names.
    pub(crate) fn intern(&self, owner: u32, name: &str) -> Found {
        let hash = self.hasher.hash_one(name) ^ u64::from(owner).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let tag = hash >> 32;
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        // The table is at most half full, so an empty slot ends every search.
        for _ in 0..self.slots.len() {
            let slot = &self.slots[at];
            let mut seen = slot.load(Ordering::Acquire);
            if seen == EMPTY {
                if !self.has_room(name) {
                    return Found::Full;
                }
                let claim = tag << 32 | u64::from(CLAIMED);
                match slot.compare_exchange(EMPTY, claim, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => return self.fill(slot, tag, owner, name),
                    Err(taken) => seen = taken,
                }
            }
            if seen >> 32 == tag {
                match seen as u32 {
                    CLAIMED => return Found::Busy,
                    BURNT => {}
                    id => {
                        if self.is(id - 1, owner, name) {
                            return Found::Id(id - 1);
                        }
                    }
                }
            }
            at = (at + 1) & mask;
        }
        Found::Full
    }

    /// The id of `name` under `owner`, if it has one.
    pub(crate) fn find(&self, owner: u32, name: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(name) ^ u64::from(owner).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mask = self.slots.len() - 1;
        let slots = (0..self.slots.len()).map(|step| &self.slots[(hash as usize).wrapping_add(step) & mask]);
        let seen = slots.map(|slot| slot.load(Ordering::Acquire)).take_while(|seen| *seen != EMPTY);
        let ids = seen
            .filter(|seen| seen >> 32 == hash >> 32 && (*seen as u32) < BURNT)
            .map(|seen| seen as u32 - 1);
        ids.into_iter().find(|id| self.is(*id, owner, name))
    }

    /// As [`intern`](Self::intern), off the request path: waits out another thread that is entering the name.
    pub(crate) fn intern_patiently(&self, owner: u32, name: &str) -> Option<u32> {
        loop {
            match self.intern(owner, name) {
                Found::Id(id) => return Some(id),
                Found::Full => return None,
                Found::Busy => std::thread::yield_now(),
            }
        }
    }

    /// How many names are published without a gap: ids below this can be read.
    pub(crate) fn published(&self, from: usize) -> usize {
        let ready = self.entries.get(from..).unwrap_or_default();
        from + ready.iter().take_while(|entry| entry.place.load(Ordering::Acquire) != 0).count()
    }

    /// The owner and the name of a published id.
    pub(crate) fn read(&self, id: u32) -> Option<(u32, String)> {
        let entry = self.entries.get(id as usize)?;
        let (first, length) = place(entry.place.load(Ordering::Acquire))?;
        let words = self.bytes.get(first..first + length.div_ceil(8))?;
        let mut bytes: Vec<u8> =
            words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        bytes.truncate(length);
        Some((entry.owner.load(Ordering::Relaxed), String::from_utf8(bytes).ok()?))
    }

    fn has_room(&self, name: &str) -> bool {
        self.entries_used.load(Ordering::Relaxed) < self.entries.len()
            && self.words_used.load(Ordering::Relaxed) + name.len().div_ceil(8) <= self.bytes.len()
    }

    /// Enters a name into a slot that this thread has claimed.
    fn fill(&self, slot: &AtomicU64, tag: u64, owner: u32, name: &str) -> Found {
        let words = name.len().div_ceil(8);
        let first = self.words_used.fetch_add(words, Ordering::Relaxed);
        let Some(target) = self.bytes.get(first..first + words) else { return self.burn(slot, tag) };
        let id = self.entries_used.fetch_add(1, Ordering::Relaxed);
        let Some(entry) = self.entries.get(id) else { return self.burn(slot, tag) };
        for (word, chunk) in target.iter().zip(chunks(name)) {
            word.store(chunk, Ordering::Relaxed);
        }
        entry.owner.store(owner, Ordering::Relaxed);
        entry.place.store((first as u64) << 16 | name.len() as u64, Ordering::Release);
        slot.store(tag << 32 | (id as u64 + 1), Ordering::Release);
        Found::Id(id as u32)
    }

    /// Gives up a claimed slot for which there turned out to be no room. It cannot become empty again: a search may
    /// already have gone past it.
    fn burn(&self, slot: &AtomicU64, tag: u64) -> Found {
        slot.store(tag << 32 | u64::from(BURNT), Ordering::Release);
        Found::Full
    }

    fn is(&self, id: u32, owner: u32, name: &str) -> bool {
        let Some(entry) = self.entries.get(id as usize) else { return false };
        let Some((first, length)) = place(entry.place.load(Ordering::Relaxed)) else { return false };
        length == name.len()
            && entry.owner.load(Ordering::Relaxed) == owner
            && self.bytes.get(first..first + length.div_ceil(8)).is_some_and(|words| {
                words.iter().zip(chunks(name)).all(|(word, chunk)| word.load(Ordering::Relaxed) == chunk)
            })
    }
}

/// First word and length of a published name.
fn place(place: u64) -> Option<(usize, usize)> {
    (place != 0).then_some(((place >> 16) as usize, (place & 0xFFFF) as usize))
}

/// A name as little-endian words, the last one padded with zeros.
fn chunks(name: &str) -> impl Iterator<Item = u64> {
    name.as_bytes().chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    })
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Barrier;

    #[test]
    fn names_get_dense_ids_by_owner() {
        let names = Names::new(4, 7);
        assert_eq!(names.intern(0, "a"), Found::Id(0));
        assert_eq!(names.intern(1, "a"), Found::Id(1));
        assert_eq!(names.intern(0, "a-name-longer-than-eight-bytes"), Found::Id(2));
        assert_eq!(names.intern(0, "a"), Found::Id(0));
        assert_eq!(names.published(0), 3);
        assert_eq!(names.read(1), Some((1, "a".to_owned())));
        assert_eq!(names.read(2), Some((0, "a-name-longer-than-eight-bytes".to_owned())));
        assert_eq!(names.read(3), None);
    }

    #[test]
    fn names_and_bytes_are_bounded() {
        let names = Names::new(2, 7);
        assert_eq!(names.intern(0, "a"), Found::Id(0));
        assert_eq!(names.intern(0, "b"), Found::Id(1));
        assert_eq!(names.intern(0, "c"), Found::Full);
        assert_eq!(names.intern(0, "b"), Found::Id(1));

        let names = Names::new(3, 7); // 144 bytes: one name of the longest kind and a short one
        let long = "x".repeat(NAME_BYTES_MAX);
        assert_eq!(names.intern(0, &long), Found::Id(0));
        assert_eq!(names.intern(1, &long), Found::Full);
        assert_eq!(names.intern(0, "short"), Found::Id(1));
        assert_eq!(names.intern(0, &long), Found::Id(0));
    }

    #[test]
    fn threads_that_meet_agree_on_one_id_for_each_name() {
        let names = Names::new(64, 7);
        let start = Barrier::new(4);
        let all: Vec<Vec<u32>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        (0..64).map(|i| names.intern_patiently(3, &format!("tenant-{i}")).unwrap()).collect()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
        assert_eq!(all[0].iter().collect::<HashSet<_>>().len(), 64);
        assert_eq!(names.published(0), 64);
    }
}
