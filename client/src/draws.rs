//! Where the randomness of a decision comes from: a generator of each thread's own, so that no thread waits for
//! another and no decision asks the system.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use fastrand::Rng as Wyrand;
use rand::Rng;
use rand::rngs::SmallRng;

use crate::seats::Seats;

/// The least a refused caller should wait.
const RETRY_AFTER_MIN_MS: u64 = 1_000;
/// The span over which refused callers are spread: a constant would bring all of them back at once.
const RETRY_AFTER_SPREAD_MS: u64 = 2_000;

/// A source of draws.
pub(crate) trait Draws {
    /// A number uniform over all of `u32`.
    fn draw(&mut self) -> u32;

    /// How long a refused caller should wait: 1 s to 3 s.
    #[inline]
    fn retry_after(&mut self) -> Duration {
        let spread = (u64::from(self.draw()) * RETRY_AFTER_SPREAD_MS) >> 32;
        Duration::from_millis(RETRY_AFTER_MIN_MS + spread)
    }
}

impl Draws for &mut SmallRng {
    #[inline]
    fn draw(&mut self) -> u32 {
        self.next_u32()
    }
}

/// Drawn from the system once, when the first limiter is made: processes cloned from one image must not share coins.
static PROCESS_SEED: OnceLock<u64> = OnceLock::new();
/// How many threads have drawn a seed.
static SEEDED: AtomicU64 = AtomicU64::new(0);
static SEATS: Seats = Seats::new();
/// One more than the highest seat that was ever taken.
static SEATED: AtomicUsize = AtomicUsize::new(0);

/// A thread that has not decided yet.
const UNSEATED: usize = usize::MAX;
/// A thread for which there was no seat, or that is about to end.
const STANDING: usize = usize::MAX - 1;

thread_local! {
    // Constant and without a destructor: an access is one address.
    static THREAD: Thread = const { Thread { seat: Cell::new(UNSEATED), seed: Cell::new(0) } };
    static LEAVING: Leaving = const { Leaving };
}

/// What a thread decides with.
pub(crate) struct Thread {
    seat: Cell<usize>,
    seed: Cell<u64>,
}

/// Gives the seat back when its thread ends.
struct Leaving;

impl Drop for Leaving {
    fn drop(&mut self) {
        let seat = THREAD.with(|thread| thread.seat.replace(STANDING));
        if seat < STANDING {
            SEATS.leave(seat);
        }
    }
}

/// Draws the seed of this process, unless that was done before.
pub(crate) fn seed_process() -> Result<u64, getrandom::Error> {
    if let Some(seed) = PROCESS_SEED.get() {
        return Ok(*seed);
    }
    let drawn = getrandom::u64()?;
    Ok(*PROCESS_SEED.get_or_init(|| drawn))
}

/// How many seats were ever taken at once: nothing was written from any higher one.
pub(crate) fn seated() -> usize {
    SEATED.load(Ordering::Relaxed)
}

/// Runs `f` with what this thread decides with.
#[inline]
pub(crate) fn with_thread<R>(f: impl FnOnce(&Thread) -> R) -> R {
    THREAD.with(f)
}

impl Thread {
    /// Which of `seats` seats is this thread's; `None` when it has none among them.
    #[inline]
    pub(crate) fn seat(&self, seats: usize) -> Option<usize> {
        let seat = self.seat.get();
        if seat < seats { Some(seat) } else { self.sit().filter(|seat| *seat < seats) }
    }

    #[cold]
    fn sit(&self) -> Option<usize> {
        if self.seat.get() == UNSEATED {
            let process = PROCESS_SEED.get().copied().unwrap_or_default();
            let number = SEEDED.fetch_add(1, Ordering::Relaxed);
            // One step of the generator, so that neighbouring numbers are not neighbouring seeds.
            self.seed.set(Wyrand::with_seed(process ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15)).u64(..));
            // A thread whose end has begun could not give a seat back any more.
            let seat = LEAVING.try_with(|_| SEATS.take()).ok().flatten();
            SEATED.fetch_max(seat.map_or(0, |seat| seat + 1), Ordering::Relaxed);
            self.seat.set(seat.unwrap_or(STANDING));
        }
        Some(self.seat.get()).filter(|seat| *seat < STANDING)
    }
}

impl Draws for &Thread {
    #[inline]
    fn draw(&mut self) -> u32 {
        let mut generator = Wyrand::with_seed(self.seed.get());
        let draw = generator.u32(..);
        self.seed.set(generator.get_seed());
        draw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of a seat is of no use to a limiter with fewer, and goes to the next thread when its own ends.
    #[test]
    fn a_thread_keeps_its_seat_until_it_ends() {
        let seat = || with_thread(|thread| thread.seat(usize::MAX - 2));
        let of_first = std::thread::spawn(move || [seat(), seat()]).join().unwrap();
        assert_eq!(of_first[0], of_first[1]);
        assert!(of_first[0].is_some());
        assert_eq!(std::thread::spawn(|| with_thread(|thread| thread.seat(0))).join().unwrap(), None);
    }

    #[test]
    fn threads_draw_unlike_numbers_that_are_uniform() {
        let draws = || {
            with_thread(|mut thread| {
                thread.seat(0);
                (0..10_000).map(|_| thread.draw()).collect::<Vec<_>>()
            })
        };
        let (one, other) =
            (std::thread::spawn(draws).join().unwrap(), std::thread::spawn(draws).join().unwrap());
        assert!(one.iter().zip(&other).filter(|(one, other)| one == other).count() < 3);
        for draws in [one, other] {
            let mean = draws.iter().map(|draw| f64::from(*draw)).sum::<f64>() / 10_000.0;
            // Eight standard deviations of the mean of 10,000 uniform draws.
            assert!((mean / f64::from(u32::MAX) - 0.5).abs() < 8.0 * 0.289 / 100.0, "{mean}");
        }
    }
}
