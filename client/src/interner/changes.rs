//! The interner's changes under the write lock: inserting, tombstoning, reviving and releasing names.

use super::free_list::FreeList;
use super::records::Records;
use super::{ASSIGNED, DEQUEUED, EMPTY, Interner, PINS, PROBES_MAX, SKIPS_MAX};
use crate::hot::sync::{AtomicBool, Ordering};

/// The write lock, released on drop.
pub(super) struct WriteLock<'a>(&'a AtomicBool);

impl Drop for WriteLock<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Interner {
    pub(super) fn try_lock(&self) -> Option<WriteLock<'_>> {
        let locked = self.is_locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        locked.is_ok().then(|| WriteLock(&self.is_locked))
    }

    pub(super) fn lock(&self) -> WriteLock<'_> {
        loop {
            if let Some(lock) = self.try_lock() {
                return lock;
            }
            #[cfg(feature = "loom")]
            loom::thread::yield_now();
            #[cfg(not(feature = "loom"))]
            std::thread::yield_now();
        }
    }

    /// Returns the id of a name: its own, its former one if it can be revived, or the next free one. Needs
    /// the write lock.
    pub(super) fn insert(&self, hash: u64, owner: u32, name: &[u8]) -> Option<u32> {
        let tag = self.tag(hash);
        let mut vacant = false;
        for at in 0..PROBES_MAX {
            let seen = self.slot(hash, at).load(Ordering::Relaxed);
            let id = (seen ^ tag).wrapping_sub(1);
            if self.records.is(id, owner, name) {
                return Some(id);
            }
            if self.records.is_tombstone_of(id, owner, name) {
                self.revive(id);
                return Some(id);
            }
            if seen == EMPTY {
                vacant = true;
                break;
            }
        }
        let (list, id) = vacant.then(|| self.next_free(name))??;
        // Removing the old name moves others, so the first vacant slot may be nearer than the one found
        // above.
        self.unlink(id);
        let mut slots = (0..PROBES_MAX).map(|at| self.slot(hash, at));
        let slot = slots.find(|slot| slot.load(Ordering::Relaxed) == EMPTY)?;
        if !self.records.write(id, owner, name) {
            return None;
        }
        slot.store(tag | (id + 1), Ordering::Release);
        self.change(id, |state| state | ASSIGNED | DEQUEUED);
        self.free.store(self.free.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        list.take();
        Some(id)
    }

    /// Returns the first free id that fits a name, and its free list.
    fn next_free(&self, name: &[u8]) -> Option<(&FreeList, u32)> {
        // A long name takes any id while there are free cells, and after that one with a cell.
        let first = (!Records::is_long(name) || self.records.has_free_cell()).then_some(&self.free_list);
        [first, Some(&self.free_long)].into_iter().flatten().find_map(|list| {
            for _ in 0..SKIPS_MAX {
                let id = list.first()?;
                if self.state(id) & ASSIGNED == 0 {
                    return Some((list, id));
                }
                self.change(id, |state| state | DEQUEUED);
                list.take();
            }
            None
        })
    }

    /// Removes the name of an id from the index, and closes the gap: each later name that may stand nearer to
    /// its home moves up. A deletion mark in the gap would be simpler, but marks accumulate until every
    /// lookup is long.
    ///
    /// A name is written to its new slot before its old one is overwritten, so a concurrent lookup may see it
    /// twice. A lookup that passed the new slot before and reaches the old one after misses it, and searches
    /// again.
    fn unlink(&self, id: u32) {
        let Some((hash, entry)) = self.entry_of(id) else { return };
        let Some(at) = (0..PROBES_MAX).find(|at| self.slot(hash, *at).load(Ordering::Relaxed) == entry)
        else {
            return;
        };
        let last = self.slots.len() - 1;
        let mut gap = (hash as usize).wrapping_add(at) & last;
        let mut next = gap;
        loop {
            next = (next + 1) & last;
            let seen = self.slots[next].load(Ordering::Relaxed);
            let Some((hash, _)) = (seen & self.mask).checked_sub(1).and_then(|id| self.entry_of(id)) else {
                return self.slots[gap].store(EMPTY, Ordering::Release);
            };
            // The distances of the name from its home, and from the gap.
            let (far, near) = (next.wrapping_sub(hash as usize) & last, next.wrapping_sub(gap) & last);
            if far >= near {
                self.slots[gap].store(seen, Ordering::Release);
                gap = next;
            }
        }
    }

    /// Returns the hash of an id's name, and its entry in the index.
    fn entry_of(&self, id: u32) -> Option<(u64, u32)> {
        let record = self.records.read(id)?;
        let hash = self.hash(record.owner, record.name());
        Some((hash, self.tag(hash) | (id + 1)))
    }

    fn revive(&self, id: u32) {
        self.records.set_tombstone(id, false);
        if self.state(id) & ASSIGNED == 0 {
            self.change(id, |state| state | ASSIGNED);
            self.free.store(self.free.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        }
    }

    fn state(&self, id: u32) -> u32 {
        self.states.get(id as usize).map_or(0, |state| state.load(Ordering::Acquire))
    }

    /// Changes the flags of an id; concurrent changes of its pins are kept. Needs the write lock.
    fn change(&self, id: u32, flags: impl Fn(u32) -> u32) {
        if let Some(state) = self.states.get(id as usize) {
            let (before, after) = (self.state(id) & !PINS, flags(self.state(id)) & !PINS);
            state.fetch_xor(before ^ after, Ordering::AcqRel);
        }
    }

    /// Tombstones a name: lookups miss it; inserting it again before its id is reused revives it. Returns
    /// false for a pinned name. Off the request path.
    pub(crate) fn tombstone(&self, id: u32) -> bool {
        let _lock = self.lock();
        let state = self.state(id);
        let is_evictable = state & ASSIGNED != 0 && state & PINS == 0;
        if is_evictable {
            self.records.set_tombstone(id, true);
        }
        is_evictable
    }

    /// True if an id's name is tombstoned.
    pub(crate) fn is_tombstone(&self, id: u32) -> bool {
        self.records.is_tombstone(id)
    }

    /// Releases the id of a tombstoned name to the free list. Returns false when the name was revived, or
    /// when the free list has no room until the taken ids are [drained](Self::drain_inserted). Off the
    /// request path.
    ///
    /// A thread that found the name before it was tombstoned may still count for the id. So the tombstone
    /// must be older than any decision takes; a thread that was suspended in a decision for longer counts one
    /// request for another name.
    pub(crate) fn release(&self, id: u32) -> bool {
        let _lock = self.lock();
        let state = self.state(id);
        if !self.records.is_tombstone(id) || state & ASSIGNED == 0 {
            return false;
        }
        let list = if self.records.has_cell(id) { &self.free_long } else { &self.free_list };
        if state & DEQUEUED != 0 && !list.push(id) {
            return false;
        }
        self.change(id, |state| state & !ASSIGNED & !DEQUEUED);
        self.free.store(self.free.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        true
    }
}
