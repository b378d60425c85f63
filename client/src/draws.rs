//! Where the randomness of a decision comes from: a generator of each thread's own, so that no thread waits for
//! another and no decision asks the system.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// The least a refused caller should wait.
const RETRY_AFTER_MIN_MS: u64 = 1_000;
/// The span over which refused callers are spread: a constant would bring all of them back at once.
const RETRY_AFTER_SPREAD_MS: u64 = 2_000;

/// A source of draws.
pub(crate) trait Draws {
    /// A number uniform over all of `u32`.
    fn draw(&mut self) -> u32;

    /// How long a refused caller should wait: 1 s to 3 s.
    fn retry_after(&mut self) -> Duration {
        let spread = (u64::from(self.draw()) * RETRY_AFTER_SPREAD_MS) >> 32;
        Duration::from_millis(RETRY_AFTER_MIN_MS + spread)
    }
}

impl Draws for SmallRng {
    #[inline]
    fn draw(&mut self) -> u32 {
        self.next_u32()
    }
}

/// Drawn from the system once, when the first limiter is made: processes cloned from one image must not share coins.
static PROCESS_SEED: OnceLock<u64> = OnceLock::new();
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    // Constant, and without a destructor: the first use on a thread neither allocates nor registers anything.
    static THREAD: RefCell<Option<Thread>> = const { RefCell::new(None) };
}

/// What a thread decides with.
pub(crate) struct Thread {
    pub(crate) generator: SmallRng,
    /// Threads are numbered in the order of their first decisions.
    pub(crate) number: usize,
}

/// Draws the seed of this process, unless that was done before.
pub(crate) fn seed_process() -> Result<u64, getrandom::Error> {
    if let Some(seed) = PROCESS_SEED.get() {
        return Ok(*seed);
    }
    let drawn = getrandom::u64()?;
    Ok(*PROCESS_SEED.get_or_init(|| drawn))
}

/// Runs `f` with what this thread decides with.
#[inline]
pub(crate) fn with_thread<R>(f: impl FnOnce(&mut Thread) -> R) -> R {
    THREAD.with_borrow_mut(|thread| f(thread.get_or_insert_with(Thread::new)))
}

impl Thread {
    #[cold]
    fn new() -> Self {
        let number = THREADS.fetch_add(1, Ordering::Relaxed);
        let process = PROCESS_SEED.get().copied().unwrap_or_default();
        let seed = process ^ (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self { generator: SmallRng::seed_from_u64(seed), number }
    }
}
