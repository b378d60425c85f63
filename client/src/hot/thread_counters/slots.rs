//! Thread slots: each deciding thread takes a small number that no other living thread has, so that it owns
//! the counters of that number.

use std::cell::Cell;
use std::sync::atomic::AtomicUsize;

use crate::hot::rng;
use crate::hot::sync::{AtomicU64, Ordering};

pub(crate) const THREAD_SLOTS_MAX: usize = 256;

const WORDS: usize = THREAD_SLOTS_MAX / u64::BITS as usize;

#[cfg(not(feature = "loom"))]
static SLOTS: ThreadSlots = ThreadSlots::new();
#[cfg(feature = "loom")]
static SLOTS: std::sync::LazyLock<ThreadSlots> = std::sync::LazyLock::new(ThreadSlots::new);
static HIGH_WATERMARK: AtomicUsize = AtomicUsize::new(0);

/// The mark of a thread that has not decided yet.
const UNASSIGNED: usize = usize::MAX;
/// The mark of a thread without a slot, because none was free or because the thread is ending.
const WITHOUT: usize = usize::MAX - 1;

thread_local! {
    // A constant initializer without a destructor makes an access a plain load.
    static SLOT: Cell<usize> = const { Cell::new(UNASSIGNED) };
    static RELEASE: ReleaseOnExit = const { ReleaseOnExit };
}

struct ReleaseOnExit;

impl Drop for ReleaseOnExit {
    fn drop(&mut self) {
        let slot = SLOT.replace(WITHOUT);
        if slot < WITHOUT {
            SLOTS.release(slot);
        }
    }
}

/// Returns the highest slot that was ever taken, plus one: counters of higher slots are all zero.
pub(crate) fn high_watermark() -> usize {
    HIGH_WATERMARK.load(Ordering::Relaxed)
}

/// Returns the current thread's slot if it is below `slots`. Must be called before the thread draws its first
/// random number, because the first call also seeds the thread's generator.
#[inline]
pub(crate) fn current(slots: usize) -> Option<usize> {
    let slot = SLOT.get();
    if slot < slots {
        Some(slot)
    } else {
        assign().filter(|slot| *slot < slots)
    }
}

#[cold]
fn assign() -> Option<usize> {
    if SLOT.get() == UNASSIGNED {
        rng::seed_thread();
        // A thread could not release a slot after its destructors have begun.
        let slot = RELEASE.try_with(|_| SLOTS.take()).ok().flatten();
        HIGH_WATERMARK.fetch_max(slot.map_or(0, |slot| slot + 1), Ordering::Relaxed);
        SLOT.set(slot.unwrap_or(WITHOUT));
    }
    Some(SLOT.get()).filter(|slot| *slot < WITHOUT)
}

pub(crate) struct ThreadSlots([AtomicU64; WORDS]);

impl ThreadSlots {
    #[cfg(not(feature = "loom"))]
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS])
    }

    #[cfg(feature = "loom")]
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Takes the lowest free slot, if there is one. The new owner sees all writes of the previous owners.
    pub(crate) fn take(&self) -> Option<usize> {
        for (word, first) in self.0.iter().zip((0..).step_by(u64::BITS as usize)) {
            let mut taken = word.load(Ordering::Relaxed);
            while taken != u64::MAX {
                let free = taken.trailing_ones();
                let with = taken | 1 << free;
                match word.compare_exchange_weak(taken, with, Ordering::Acquire, Ordering::Relaxed)
                {
                    Ok(_) => return Some(first + free as usize),
                    Err(now) => taken = now,
                }
            }
        }
        None
    }

    /// Releases a slot, and publishes what its owner has written to its counters.
    pub(crate) fn release(&self, slot: usize) {
        debug_assert!(slot < THREAD_SLOTS_MAX, "slot {slot} was never taken");
        let bits = u64::BITS as usize;
        if let Some(word) = self.0.get(slot / bits) {
            word.fetch_and(!(1 << (slot % bits)), Ordering::Release);
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    #[test]
    fn lowest_free_slot_is_reused() {
        let slots = ThreadSlots::new();
        let all: Vec<_> = (0..THREAD_SLOTS_MAX)
            .map(|_| slots.take().unwrap())
            .collect();
        assert_eq!(all, (0..THREAD_SLOTS_MAX).collect::<Vec<_>>());
        assert_eq!(slots.take(), None);
        slots.release(130);
        slots.release(7);
        assert_eq!(
            (slots.take(), slots.take(), slots.take()),
            (Some(7), Some(130), None)
        );
    }

    /// A limiter with fewer slots ignores a thread's higher slot.
    #[test]
    fn thread_keeps_its_slot_until_it_ends() {
        let of_thread = || current(WITHOUT);
        let of_first = std::thread::spawn(move || [of_thread(), of_thread()])
            .join()
            .unwrap();
        assert_eq!(of_first[0], of_first[1]);
        assert!(of_first[0].is_some());
        assert_eq!(std::thread::spawn(|| current(0)).join().unwrap(), None);
    }
}
