//! Which thread is which: every thread that decides has a seat, a small number that no other living thread has, so that
//! what it writes is its own.

use crate::hot::sync::{AtomicU64, Ordering};

/// How many threads can have a seat at the same time.
pub(crate) const SEATS_MAX: usize = 256;

const WORDS: usize = SEATS_MAX / u64::BITS as usize;

/// The seats of a process, one bit each.
#[derive(Debug)]
pub(crate) struct Seats([AtomicU64; WORDS]);

impl Seats {
    /// None is taken.
    #[cfg(not(feature = "loom"))]
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS])
    }

    /// None is taken.
    #[cfg(feature = "loom")]
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Takes the lowest seat that is free; `None` when there is none. Whoever takes a seat sees all that was written by
    /// those who had it before.
    pub(crate) fn take(&self) -> Option<usize> {
        for (word, first) in self.0.iter().zip((0..).step_by(u64::BITS as usize)) {
            let mut taken = word.load(Ordering::Relaxed);
            while taken != u64::MAX {
                let free = taken.trailing_ones();
                let with = taken | 1 << free;
                match word.compare_exchange_weak(taken, with, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => return Some(first + free as usize),
                    Err(now) => taken = now,
                }
            }
        }
        None
    }

    /// Gives a seat back, and with it all that was written from it.
    pub(crate) fn leave(&self, seat: usize) {
        let bits = u64::BITS as usize;
        if let Some(word) = self.0.get(seat / bits) {
            word.fetch_and(!(1 << (seat % bits)), Ordering::Release);
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn seats_are_given_once_lowest_first_and_given_again() {
        let seats = Seats::new();
        let all: Vec<_> = (0..SEATS_MAX).map(|_| seats.take().unwrap()).collect();
        assert_eq!(all, (0..SEATS_MAX).collect::<Vec<_>>());
        assert_eq!(seats.take(), None);
        seats.leave(130);
        seats.leave(7);
        assert_eq!((seats.take(), seats.take(), seats.take()), (Some(7), Some(130), None));
    }

    #[test]
    fn threads_that_race_never_share_a_seat() {
        let seats = Seats::new();
        let taken: Vec<usize> = std::thread::scope(|scope| {
            let thread = |_| scope.spawn(|| (0..32).map(|_| seats.take().unwrap()).collect::<Vec<_>>());
            let threads: Vec<_> = (0..8).map(thread).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(taken.iter().collect::<HashSet<_>>().len(), 8 * 32);
    }
}
