//! The cells of all who decide with one limiter: a slab for each seat, one for threads that have none, and those of
//! shards.

mod slab;

pub(crate) use slab::{Batch, Outcome, Row, Slab};

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_core::report::Counts;

use crate::hot::rng;

/// Every slab of one limiter. Those of seats are set aside at the start: a thread's first decision allocates nothing.
#[derive(Debug)]
pub(crate) struct Slabs {
    keys: usize,
    seats: Box<[Slab]>,
    standing: Slab,
    shards: Mutex<Vec<Arc<Slab>>>,
}

impl Slabs {
    /// Slabs for `seats` threads at a time; further ones share one.
    pub(crate) fn new(keys: usize, seats: usize) -> Self {
        Self {
            keys,
            seats: (0..seats).map(|_| Slab::new(keys)).collect(),
            standing: Slab::shared(keys),
            shards: Mutex::default(),
        }
    }

    /// The slab that the present thread writes to.
    #[inline]
    pub(crate) fn of_thread(&self) -> &Slab {
        let own = rng::seat(self.seats.len()).and_then(|seat| self.seats.get(seat));
        own.unwrap_or(&self.standing)
    }

    /// A slab for one owner that is no thread. What it counts is kept when the owner is gone.
    pub(crate) fn of_shard(&self) -> Arc<Slab> {
        let slab = Arc::new(Slab::new(self.keys));
        self.shards.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&slab));
        slab
    }

    /// How many of the seats were ever used.
    pub(crate) fn seated(&self) -> usize {
        rng::seated().min(self.seats.len())
    }

    /// Everything counted for a key so far.
    pub(crate) fn counts(&self, key: u32) -> Counts {
        self.fold(Counts::ZERO, |counts, slab| counts.plus(slab.counts(key)))
    }

    /// Tokens of a key's guard that were used so far, modulo 2^32.
    pub(crate) fn used(&self, key: u32) -> u32 {
        self.fold(0, |used: u32, slab| used.wrapping_add(slab.batch(key).used()))
    }

    fn fold<T>(&self, none: T, mut f: impl FnMut(T, &Slab) -> T) -> T {
        let threads = self.seats.iter().take(self.seated()).chain([&self.standing]).fold(none, &mut f);
        let shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        shards.iter().fold(threads, |all, slab| f(all, slab))
    }
}
