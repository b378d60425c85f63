//! The tokens of a guard, shared by all threads of a process. Threads take them in batches, so that they seldom meet here.

use crate::hot::thread_counters::{Batch, Slab};
use crate::hot::sync::{AtomicU32, AtomicU64, Ordering};

/// How many batches per thread the depth of a guard makes.
const BATCHES: u32 = 4;

/// What a guard may still let pass until its next refill, in whole tokens. Filled off the request path, so that a
/// decision reads no clock.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    tokens: AtomicU64,
    /// How many a thread takes at once.
    batch: AtomicU32,
    /// The most there can be: a request that costs more passes when there are that many, and leaves a debt.
    depth: AtomicU32,
}

impl Pool {
    /// Says how many tokens there are from now on, and how they are taken by `threads` threads. What threads have taken
    /// in advance must be void by then, that is to say, another refill must begin right after it.
    pub(crate) fn fill(&self, tokens: u64, depth: f64, threads: usize) {
        // A cast from a float saturates.
        let depth = depth as u32;
        let batches = BATCHES.saturating_mul(u32::try_from(threads).unwrap_or(u32::MAX)).max(1);
        self.batch.store((depth / batches).clamp(1, Batch::LEFT_MAX), Ordering::Relaxed);
        self.depth.store(depth, Ordering::Relaxed);
        self.tokens.store(tokens, Ordering::Release);
    }

    /// Takes `n` tokens out of a thread's batch, or a new batch out of the pool; false when there are not so many.
    pub(crate) fn take(&self, slab: &Slab, key: u32, refill: u16, n: u32) -> bool {
        let (batch, left) = match slab.is_shared() {
            true => (None, 0),
            false => (Some(slab.batch(key)), slab.batch(key).left(refill)),
        };
        let missing = u64::from(n - left.min(n));
        let at_once = if batch.is_some() { u64::from(self.batch.load(Ordering::Relaxed)) } else { 0 };
        let depth = u64::from(self.depth.load(Ordering::Relaxed));
        let mut drawn = 0;
        let pays = |tokens: u64| {
            // What costs more than there can ever be passes when there is all that there can be.
            let whole = n > 1 && u64::from(n) > depth && depth > 0 && tokens + u64::from(left) >= depth;
            (tokens >= missing || whole).then(|| at_once.max(missing).min(tokens))
        };
        let taken = self.tokens.fetch_update(Ordering::Acquire, Ordering::Relaxed, |tokens| {
            drawn = pays(tokens)?;
            Some(tokens - drawn)
        });
        if taken.is_err() {
            return false;
        }
        match batch {
            Some(batch) => {
                let left = (u64::from(left) + drawn).saturating_sub(u64::from(n));
                slab.set_batch(key, batch.after(n, left as u32, refill));
            }
            None => slab.note_used(key, i32::try_from(n).unwrap_or(i32::MAX)),
        }
        true
    }

    /// Gives tokens back that were just taken for a request that was refused after all.
    pub(crate) fn give_back(&self, slab: &Slab, key: u32, refill: u16, n: u32) {
        if slab.is_shared() {
            self.tokens.fetch_add(u64::from(n), Ordering::Relaxed);
            slab.note_used(key, -i32::try_from(n).unwrap_or(i32::MAX));
        } else {
            let batch = slab.batch(key);
            let left = batch.left(refill).saturating_add(n).min(Batch::LEFT_MAX);
            slab.set_batch(key, batch.after(0u32.wrapping_sub(n), left, refill));
        }
    }

    /// Whether nothing is left in the pool itself.
    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.load(Ordering::Relaxed) == 0
    }

    #[cfg(test)]
    #[cfg(not(feature = "loom"))]
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    #[test]
    fn threads_that_race_take_each_token_once() {
        for (threads, shared) in [(4, false), (4, true), (1, false)] {
            let pool = Pool::default();
            pool.fill(10_000, 12_000.5, threads);
            let common = Slab::shared(1);
            let slabs: Vec<Slab> = (0..threads).map(|_| Slab::new(1)).collect();
            let slab = |at: usize| if shared { &common } else { &slabs[at] };
            let all: usize = std::thread::scope(|scope| {
                let (pool, slab) = (&pool, &slab);
                let thread = |at| {
                    let slab = slab(at);
                    scope.spawn(move || (0..10_000).filter(|_| pool.take(slab, 0, 3, 1)).count())
                };
                let threads: Vec<_> = (0..threads).map(thread).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!((all, pool.tokens()), (10_000, 0), "{threads} threads");
            let used: u32 = slabs.iter().chain([&common]).map(|slab| slab.batch(0).used()).sum();
            assert_eq!(used, 10_000, "{threads} threads");
        }
    }

    #[test]
    fn a_batch_is_a_part_of_the_depth_and_void_after_the_next_refill() {
        let (pool, slab) = (Pool::default(), Slab::new(1));
        pool.fill(100, 100.0, 5);
        assert!(pool.take(&slab, 0, 1, 1));
        assert_eq!((pool.tokens(), slab.batch(0).left(1)), (95, 4), "100 / (4 * 5) at once");
        assert_eq!(slab.batch(0).left(2), 0);
        pool.fill(3, 100.0, 5);
        assert!(pool.take(&slab, 0, 2, 1));
        assert_eq!((pool.tokens(), slab.batch(0).left(2), slab.batch(0).used()), (0, 2, 2));
        pool.fill(9, 3.0, 5);
        assert!(pool.take(&slab, 0, 3, 1));
        assert_eq!((pool.tokens(), slab.batch(0).left(3)), (8, 0), "never less than one");
    }

    #[test]
    fn a_request_that_costs_more_takes_more_or_nothing() {
        let (pool, slab) = (Pool::default(), Slab::new(1));
        pool.fill(10, 10.0, 1);
        for (n, passes, tokens) in [(7, true, 3), (4, false, 3), (3, true, 0), (1, false, 0)] {
            assert_eq!(pool.take(&slab, 0, 1, n), passes, "{n}");
            assert_eq!(pool.tokens(), tokens, "{n}");
        }
        assert_eq!(slab.batch(0).used(), 10);
        pool.fill(9, 10.0, 1);
        assert!(!pool.take(&slab, 0, 2, 50), "more than the depth, and the pool is not full");
        pool.fill(10, 10.0, 1);
        assert!(pool.take(&slab, 0, 3, 50), "nothing larger would ever pass otherwise");
        assert_eq!((pool.tokens(), slab.batch(0).used()), (0, 60), "the debt is told");
        pool.fill(0, 0.0, 1);
        assert!(!pool.take(&slab, 0, 4, 50), "a depth of nothing lets nothing pass");
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        for slab in [Slab::new(1), Slab::shared(1)] {
            let pool = Pool::default();
            pool.fill(5, 5.0, 1);
            assert!(pool.take(&slab, 0, 1, 5));
            pool.give_back(&slab, 0, 1, 5);
            assert_eq!(slab.batch(0).used(), 0);
            assert!(pool.take(&slab, 0, 1, 5));
            assert!(!pool.take(&slab, 0, 1, 1));
        }
    }
}
