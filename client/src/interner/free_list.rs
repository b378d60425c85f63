//! The line in which free ids wait to be given out, which is also the record of those that were.

use crate::hot::sync::{AtomicU32, AtomicU64, Ordering, zeroed};

/// A ring of ids. One writer at a time (the caller's claim), one reader of what was taken.
#[derive(Debug)]
pub(crate) struct Line {
    /// Each id XORed with its place, so that a line of zeros is that of all ids in order.
    ids: Vec<AtomicU32>,
    /// How many were ever taken.
    taken: AtomicU64,
    /// How many ever stood in line.
    queued: AtomicU64,
    /// How many of those taken were read.
    read: AtomicU64,
}

impl Line {
    /// A line of all ids below `ids`.
    pub(crate) fn of_all(ids: usize) -> Self {
        Self { queued: AtomicU64::new(ids as u64), ..Self::empty(ids) }
    }

    /// An empty line with room for `ids`.
    pub(crate) fn empty(ids: usize) -> Self {
        let [taken, queued, read] = [(); 3].map(|()| AtomicU64::new(0));
        Self { ids: zeroed(ids), taken, queued, read }
    }

    /// The first id in line.
    pub(crate) fn first(&self) -> Option<u32> {
        let taken = self.taken.load(Ordering::Relaxed);
        if taken == self.queued.load(Ordering::Relaxed) { None } else { self.at(taken) }
    }

    /// Takes the first id out of the line. What was written before is seen by whoever reads of it.
    pub(crate) fn take(&self) {
        self.taken.store(self.taken.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Puts an id into the line. False, and nothing is done, while that would write over what was not read yet.
    pub(crate) fn push(&self, id: u32) -> bool {
        let queued = self.queued.load(Ordering::Relaxed);
        if queued >= self.read.load(Ordering::Relaxed) + self.ids.len() as u64 {
            return false;
        }
        let place = (queued % self.ids.len() as u64) as usize;
        self.ids[place].store(id ^ place as u32, Ordering::Relaxed);
        self.queued.store(queued + 1, Ordering::Relaxed);
        true
    }

    /// The id that was taken next after the last one read.
    pub(crate) fn unread(&self) -> Option<u32> {
        let read = self.read.load(Ordering::Relaxed);
        if read == self.taken.load(Ordering::Acquire) { None } else { self.at(read) }
    }

    /// What [`unread`](Self::unread) says has been read.
    pub(crate) fn read(&self) {
        self.read.store(self.read.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn at(&self, count: u64) -> Option<u32> {
        let place = count.checked_rem(self.ids.len() as u64)? as usize;
        Some(self.ids.get(place)?.load(Ordering::Relaxed) ^ place as u32)
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    #[test]
    fn ids_are_taken_in_order_and_come_back_behind_what_was_read() {
        let line = Line::of_all(2);
        assert_eq!((line.first(), line.unread()), (Some(0), None));
        line.take();
        line.take();
        assert_eq!(line.first(), None);
        assert!(!line.push(1), "nothing was read");
        assert_eq!(line.unread(), Some(0));
        line.read();
        assert!(line.push(1));
        assert_eq!((line.first(), line.unread()), (Some(1), Some(1)));
        line.read();
        assert_eq!(line.unread(), None);
    }

    #[test]
    fn a_line_may_have_no_room_at_all() {
        let line = Line::empty(0);
        assert_eq!((line.first(), line.unread(), line.push(0)), (None, None, false));
    }
}
