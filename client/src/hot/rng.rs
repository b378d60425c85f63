//! Where the randomness of a decision comes from: a generator of each thread's own, so that no thread waits for
//! another and no decision asks the system.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use fastrand::Rng as Wyrand;
use rand::Rng;
use rand::rngs::SmallRng;

use crate::hot::thread_slots::Seats;

/// A source of draws.
pub(crate) trait Draws {
    /// A number uniform over all of `u64`.
    fn draw(&mut self) -> Draw;
}

/// A draw: two numbers uniform over all of `u32`, each good for one purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Draw(u64);

impl Draw {
    /// For a coin.
    #[inline]
    pub(crate) const fn coin(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// For another, independent of the first.
    #[inline]
    pub(crate) const fn other(self) -> u32 {
        self.0 as u32
    }

    /// Both numbers.
    #[inline]
    pub(crate) const fn both(self) -> (u32, u32) {
        (self.coin(), self.other())
    }

    /// A draw that nobody made, for what needs no more than to differ from one request to the next.
    #[inline]
    pub(crate) const fn of(number: u32) -> Self {
        Self(number as u64)
    }

    /// How long a refused caller should wait, by the other number: 1 s to 3 s. A constant would bring all of them back at
    /// once.
    #[inline]
    pub(crate) fn retry_after(self) -> Duration {
        let seconds = 1 + (self.other() >> 31);
        let nanos = (u64::from(self.other() << 1) * 1_000_000_000) >> 32;
        Duration::new(u64::from(seconds), nanos as u32)
    }
}

impl Draws for &mut SmallRng {
    #[inline]
    fn draw(&mut self) -> Draw {
        Draw(self.next_u64())
    }
}

/// Drawn from the system once, when the first limiter is made: processes cloned from one image must not share coins.
static PROCESS_SEED: OnceLock<u64> = OnceLock::new();
/// How many threads have drawn a seed.
static SEEDED: AtomicU64 = AtomicU64::new(0);
#[cfg(not(feature = "loom"))]
static SEATS: Seats = Seats::new();
#[cfg(feature = "loom")]
static SEATS: std::sync::LazyLock<Seats> = std::sync::LazyLock::new(Seats::new);
/// One more than the highest seat that was ever taken.
static SEATED: AtomicUsize = AtomicUsize::new(0);

/// A thread that has not decided yet.
const UNSEATED: usize = usize::MAX;
/// A thread for which there was no seat, or that is about to end.
const STANDING: usize = usize::MAX - 1;

thread_local! {
    // Constants without a destructor: an access is one address.
    static SEAT: Cell<usize> = const { Cell::new(UNSEATED) };
    static SEED: Cell<u64> = const { Cell::new(0) };
    static LEAVING: Leaving = const { Leaving };
}

/// Gives the seat back when its thread ends.
struct Leaving;

impl Drop for Leaving {
    fn drop(&mut self) {
        let seat = SEAT.replace(STANDING);
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

/// Which of `seats` seats is this thread's; `None` when it has none among them. To be asked before the thread draws.
#[inline]
pub(crate) fn seat(seats: usize) -> Option<usize> {
    let seat = SEAT.get();
    if seat < seats { Some(seat) } else { sit().filter(|seat| *seat < seats) }
}

#[cold]
fn sit() -> Option<usize> {
    if SEAT.get() == UNSEATED {
        let process = PROCESS_SEED.get().copied().unwrap_or_default();
        let number = SEEDED.fetch_add(1, Ordering::Relaxed);
        // One step of the generator, so that neighbouring numbers are not neighbouring seeds.
        SEED.set(Wyrand::with_seed(process ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15)).u64(..));
        // A thread whose end has begun could not give a seat back any more.
        let seat = LEAVING.try_with(|_| SEATS.take()).ok().flatten();
        SEATED.fetch_max(seat.map_or(0, |seat| seat + 1), Ordering::Relaxed);
        SEAT.set(seat.unwrap_or(STANDING));
    }
    Some(SEAT.get()).filter(|seat| *seat < STANDING)
}

/// The generator of the present thread.
pub(crate) struct OwnDraws;

impl Draws for OwnDraws {
    #[inline]
    fn draw(&mut self) -> Draw {
        let mut generator = Wyrand::with_seed(SEED.get());
        let draw = generator.u64(..);
        SEED.set(generator.get_seed());
        Draw(draw)
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    /// The number of a seat is of no use to a limiter with fewer, and goes to the next thread when its own ends.
    #[test]
    fn a_thread_keeps_its_seat_until_it_ends() {
        let of_thread = || seat(STANDING);
        let of_first = std::thread::spawn(move || [of_thread(), of_thread()]).join().unwrap();
        assert_eq!(of_first[0], of_first[1]);
        assert!(of_first[0].is_some());
        assert_eq!(std::thread::spawn(|| seat(0)).join().unwrap(), None);
    }

    #[test]
    fn refused_callers_come_back_spread_over_two_seconds() {
        let wait = |number: u32| Draw::of(number).retry_after();
        assert_eq!((wait(0), wait(1 << 31)), (Duration::from_secs(1), Duration::from_secs(2)));
        assert!((Duration::from_millis(2_999)..Duration::from_secs(3)).contains(&wait(u32::MAX)));
        assert_eq!(wait(3 << 30).as_millis(), 2_500);
    }

    #[test]
    fn threads_draw_unlike_numbers_that_are_uniform() {
        let draws = || {
            seat(0);
            (0..10_000).map(|_| OwnDraws.draw()).collect::<Vec<Draw>>()
        };
        let (one, other) =
            (std::thread::spawn(draws).join().unwrap(), std::thread::spawn(draws).join().unwrap());
        assert!(one.iter().zip(&other).filter(|(one, other)| one == other).count() < 3);
        for part in [Draw::coin, Draw::other] {
            let mean = one.iter().map(|draw| f64::from(part(*draw))).sum::<f64>() / 10_000.0;
            // Eight standard deviations of the mean of 10,000 uniform draws.
            assert!((mean / f64::from(u32::MAX) - 0.5).abs() < 8.0 * 0.289 / 100.0, "{mean}");
        }
    }
}
