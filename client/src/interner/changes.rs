//! What only the holder of the claim does: giving ids to names, and taking them back.

use super::free_list::Line;
use super::records::Records;
use super::{EMPTY, GIVEN, Names, OUT_OF_LINE, PINS, PROBES_MAX, SKIPS_MAX};
use crate::hot::sync::{AtomicBool, Ordering};

/// The right to change the table.
pub(super) struct Claim<'a>(&'a AtomicBool);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Names {
    pub(super) fn try_claim(&self) -> Option<Claim<'_>> {
        let claimed = self.claimed.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        claimed.is_ok().then(|| Claim(&self.claimed))
    }

    pub(super) fn claim(&self) -> Claim<'_> {
        loop {
            if let Some(claim) = self.try_claim() {
                return claim;
            }
            #[cfg(feature = "loom")]
            loom::thread::yield_now();
            #[cfg(not(feature = "loom"))]
            std::thread::yield_now();
        }
    }

    /// The id of a name: the one it has, the one it had and may have again, or the next in line. Needs the claim.
    pub(super) fn enter(&self, hash: u64, owner: u32, name: &[u8]) -> Option<u32> {
        let tag = self.tag(hash);
        let mut vacant = false;
        for at in 0..PROBES_MAX {
            let seen = self.slot(hash, at).load(Ordering::Relaxed);
            let id = (seen ^ tag).wrapping_sub(1);
            if self.records.is(id, owner, name) {
                return Some(id);
            }
            if self.records.rests_as(id, owner, name) {
                self.wake(id);
                return Some(id);
            }
            if seen == EMPTY {
                vacant = true;
                break;
            }
        }
        let (line, id) = vacant.then(|| self.next_in_line(name))??;
        // With the name that is given up here, others move: the first vacant slot may be a nearer one.
        self.give_up(id);
        let mut slots = (0..PROBES_MAX).map(|at| self.slot(hash, at));
        let slot = slots.find(|slot| slot.load(Ordering::Relaxed) == EMPTY)?;
        if !self.records.write(id, owner, name) {
            return None;
        }
        slot.store(tag | (id + 1), Ordering::Release);
        self.change(id, |state| state | GIVEN | OUT_OF_LINE);
        self.free.store(self.free.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        line.take();
        Some(id)
    }

    /// The first id in line that fits a name, and the line.
    fn next_in_line(&self, name: &[u8]) -> Option<(&Line, u32)> {
        // A long name may take any id while there are cells, and after that one with a cell.
        let first = (!Records::is_long(name) || self.records.has_free_cell()).then_some(&self.line);
        [first, Some(&self.long_line)].into_iter().flatten().find_map(|line| {
            for _ in 0..SKIPS_MAX {
                let id = line.first()?;
                if self.state(id) & GIVEN == 0 {
                    return Some((line, id));
                }
                self.change(id, |state| state | OUT_OF_LINE);
                line.take();
            }
            None
        })
    }

    /// Takes the name of an id out of the index, and closes the gap: each name behind it that may stand nearer to where
    /// its hash leads moves up. A mark in the gap would be simpler, but marks pile up until every search is long.
    ///
    /// A name is written to its new slot before the old one is written over, so a search may meet it twice; one that
    /// passed the new slot before and comes to the old one after does not meet it, and looks again.
    fn give_up(&self, id: u32) {
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
            // How far it stands from where its hash leads, and from the gap.
            let (far, near) = (next.wrapping_sub(hash as usize) & last, next.wrapping_sub(gap) & last);
            if far >= near {
                self.slots[gap].store(seen, Ordering::Release);
                gap = next;
            }
        }
    }

    /// The hash of the name of an id, and its slot's content.
    fn entry_of(&self, id: u32) -> Option<(u64, u32)> {
        let record = self.records.read(id)?;
        let hash = self.hash(record.owner, record.name());
        Some((hash, self.tag(hash) | (id + 1)))
    }

    fn wake(&self, id: u32) {
        self.records.set_resting(id, false);
        if self.state(id) & GIVEN == 0 {
            self.change(id, |state| state | GIVEN);
            self.free.store(self.free.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        }
    }

    fn state(&self, id: u32) -> u32 {
        self.states.get(id as usize).map_or(0, |state| state.load(Ordering::Acquire))
    }

    /// Changes the flags of an id, whatever happens to its pins meanwhile. Needs the claim.
    fn change(&self, id: u32, flags: impl Fn(u32) -> u32) {
        if let Some(state) = self.states.get(id as usize) {
            let (before, after) = (self.state(id) & !PINS, flags(self.state(id)) & !PINS);
            state.fetch_xor(before ^ after, Ordering::AcqRel);
        }
    }

    /// Lays a name to rest: it is found no longer, but wakes with its id when it is asked for again as a new one would
    /// be. False for a pinned one. Off the request path.
    pub(crate) fn rest(&self, id: u32) -> bool {
        let _claim = self.claim();
        let state = self.state(id);
        let may_rest = state & GIVEN != 0 && state & PINS == 0;
        if may_rest {
            self.records.set_resting(id, true);
        }
        may_rest
    }

    /// Whether a name is resting.
    pub(crate) fn is_resting(&self, id: u32) -> bool {
        self.records.is_resting(id)
    }

    /// Lets the next new name have the id of a resting one. False when the name woke, or when the ids that were taken
    /// have to be [read](Self::entered) first. Off the request path.
    ///
    /// A thread that found the name before it was laid to rest may still count for the id. So it must have rested for
    /// longer than any decision takes; a thread that was stopped in the middle of one for longer than that counts one
    /// request for another name.
    pub(crate) fn offer(&self, id: u32) -> bool {
        let _claim = self.claim();
        let state = self.state(id);
        if !self.records.is_resting(id) || state & GIVEN == 0 {
            return false;
        }
        let line = if self.records.has_cell(id) { &self.long_line } else { &self.line };
        if state & OUT_OF_LINE != 0 && !line.push(id) {
            return false;
        }
        self.change(id, |state| state & !GIVEN & !OUT_OF_LINE);
        self.free.store(self.free.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        true
    }
}
