//! The free list: a ring of free ids, which is also the log of the ids that were taken.

use crate::hot::sync::{AtomicU32, AtomicU64, Ordering, zeroed};

/// A ring of ids. One writer at a time (the caller holds the write lock), one reader of the taken ids.
#[derive(Debug)]
pub(crate) struct FreeList {
    /// Each id XORed with its place, so that a ring of zeros is the list of all ids in order.
    ids: Vec<AtomicU32>,
    /// The number of ids ever taken.
    taken: AtomicU64,
    /// The number of ids ever pushed.
    queued: AtomicU64,
    /// The number of taken ids that were read.
    read: AtomicU64,
}

impl FreeList {
    /// Makes a list of all ids below `ids`.
    pub(crate) fn of_all(ids: usize) -> Self {
        Self { queued: AtomicU64::new(ids as u64), ..Self::empty(ids) }
    }

    /// Makes an empty list with room for `ids`.
    pub(crate) fn empty(ids: usize) -> Self {
        let [taken, queued, read] = [(); 3].map(|()| AtomicU64::new(0));
        Self { ids: zeroed(ids), taken, queued, read }
    }

    /// Returns the first free id.
    pub(crate) fn first(&self) -> Option<u32> {
        let taken = self.taken.load(Ordering::Relaxed);
        if taken == self.queued.load(Ordering::Relaxed) { None } else { self.at(taken) }
    }

    /// Takes the first id. The reader of the taken id sees all earlier writes.
    pub(crate) fn take(&self) {
        self.taken.store(self.taken.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Pushes an id. Returns false, without an effect, if that would overwrite a taken id that was not read
    /// yet.
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

    /// Returns the first taken id that was not read.
    pub(crate) fn next_unread(&self) -> Option<u32> {
        let read = self.read.load(Ordering::Relaxed);
        if read == self.taken.load(Ordering::Acquire) { None } else { self.at(read) }
    }

    /// Marks the id of [`next_unread`](Self::next_unread) as read.
    pub(crate) fn mark_read(&self) {
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
    fn ids_are_taken_in_order_and_reused_after_they_were_read() {
        let list = FreeList::of_all(2);
        assert_eq!((list.first(), list.next_unread()), (Some(0), None));
        list.take();
        list.take();
        assert_eq!(list.first(), None);
        assert!(!list.push(1), "the taken ids were not read");
        assert_eq!(list.next_unread(), Some(0));
        list.mark_read();
        assert!(list.push(1));
        assert_eq!((list.first(), list.next_unread()), (Some(1), Some(1)));
        list.mark_read();
        assert_eq!(list.next_unread(), None);
    }

    #[test]
    fn list_may_have_a_capacity_of_zero() {
        let list = FreeList::empty(0);
        assert_eq!((list.first(), list.next_unread(), list.push(0)), (None, None, false));
    }
}
