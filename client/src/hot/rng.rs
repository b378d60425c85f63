//! The randomness of decisions: a generator per thread, so that no decision waits for another thread or makes
//! a system call.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng as Wyrand;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// A generator of decisions' draws and of the jitter of waits.
pub(crate) trait DrawSource {
    /// Draws a number uniform over all of `u64`.
    fn draw(&mut self) -> Draw;

    /// Draws a number uniform over all of `u32` that no decision depends on.
    fn jitter(&mut self) -> u32;
}

/// A random draw: two independent numbers uniform over all of `u32`, one for the coin and one for other uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Draw(u64);

impl Draw {
    #[cfg(feature = "testing")]
    #[inline]
    pub(crate) const fn of(bits: u64) -> Self {
        Self(bits)
    }

    #[inline]
    pub(crate) const fn coin(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    pub(crate) const fn other(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub(crate) const fn both(self) -> (u32, u32) {
        (self.coin(), self.other())
    }
}

/// Draws that depend only on a seed. Jitter has its own generator, so that no decision depends on
/// the number of earlier refusals.
#[derive(Debug)]
pub(crate) struct SeededDraws {
    decisions: SmallRng,
    jitter: Wyrand,
}

impl SeededDraws {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            decisions: SmallRng::seed_from_u64(seed),
            jitter: Wyrand::with_seed(seed),
        }
    }
}

impl DrawSource for &mut SeededDraws {
    #[inline]
    fn draw(&mut self) -> Draw {
        Draw(self.decisions.next_u64())
    }

    #[inline]
    fn jitter(&mut self) -> u32 {
        self.jitter.u32(..)
    }
}

/// Seeded by the operating system when the first limiter is made, so that processes cloned from one image
/// draw differently.
static PROCESS_SEED: OnceLock<u64> = OnceLock::new();
static THREADS_SEEDED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    // A constant initializer without a destructor makes an access a plain load.
    static SEED: Cell<u64> = const { Cell::new(0) };
    static JITTER: Cell<u32> = const { Cell::new(0) };
}

pub(crate) fn seed_process() -> Result<u64, getrandom::Error> {
    if let Some(seed) = PROCESS_SEED.get() {
        return Ok(*seed);
    }
    let drawn = getrandom::u64()?;
    Ok(*PROCESS_SEED.get_or_init(|| drawn))
}

/// Seeds the current thread's generator from the process's seed.
pub(crate) fn seed_thread() {
    let process = PROCESS_SEED.get().copied().unwrap_or_default();
    let number = THREADS_SEEDED.fetch_add(1, Ordering::Relaxed);
    // One step of the generator decorrelates the seeds of consecutive threads.
    let mut seeds = Wyrand::with_seed(process ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    SEED.set(seeds.u64(..));
    JITTER.set(seeds.u32(..));
}

/// The generator of the current thread, which `seed_thread` has seeded.
pub(crate) struct ThreadRng;

impl DrawSource for ThreadRng {
    #[inline]
    fn draw(&mut self) -> Draw {
        let mut generator = Wyrand::with_seed(SEED.get());
        let draw = generator.u64(..);
        SEED.set(generator.get_seed());
        Draw(draw)
    }

    /// Takes a step of the golden ratio, a Weyl sequence: it spreads more evenly than random numbers, and is
    /// cheaper than a draw.
    #[inline]
    fn jitter(&mut self) -> u32 {
        let jitter = JITTER.get().wrapping_add(0x9E37_79B9);
        JITTER.set(jitter);
        jitter
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    #[test]
    fn threads_draw_different_uniform_numbers() {
        let draws = || {
            seed_thread();
            (0..10_000).map(|_| ThreadRng.draw()).collect::<Vec<Draw>>()
        };
        let (one, other) = (
            std::thread::spawn(draws).join().unwrap(),
            std::thread::spawn(draws).join().unwrap(),
        );
        assert!(
            one.iter()
                .zip(&other)
                .filter(|(one, other)| one == other)
                .count()
                < 3
        );
        for part in [Draw::coin, Draw::other] {
            let mean = one.iter().map(|draw| f64::from(part(*draw))).sum::<f64>() / 10_000.0;
            // Eight standard deviations of the mean of 10,000 uniform draws.
            assert!(
                (mean / f64::from(u32::MAX) - 0.5).abs() < 8.0 * 0.289 / 100.0,
                "{mean}"
            );
        }
    }

    #[test]
    fn jitter_is_even_and_differs_by_thread() {
        let jitter = || {
            seed_thread();
            (0..10_000)
                .map(|_| ThreadRng.jitter())
                .collect::<Vec<u32>>()
        };
        let (one, other) = (
            std::thread::spawn(jitter).join().unwrap(),
            std::thread::spawn(jitter).join().unwrap(),
        );
        assert_ne!(one[0], other[0]);
        // The requests of one caller may be one of every few of a thread.
        for every in 1..=20 {
            let mut fourths = [0_usize; 4];
            one.iter()
                .step_by(every)
                .for_each(|jitter| fourths[(jitter >> 30) as usize] += 1);
            let expected = 10_000 / every / 4;
            assert!(
                fourths
                    .iter()
                    .all(|count| count.abs_diff(expected) < expected / 10 + 3),
                "{every}: {fourths:?}"
            );
        }
    }
}
