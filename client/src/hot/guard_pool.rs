//! The tokens of a guard or of a bucket's headroom, shared by all threads of a process. Threads take them in
//! batches, so that they seldom contend.

use plimsoll_core::decision::token_bucket::TokenCount;

use crate::hot::sync::{AtomicU32, AtomicU64, Ordering};
use crate::hot::table::{Table, Target};
use crate::hot::thread_counters::{CounterBlock, TokenBatch};

/// Number of batches per thread in a guard's depth.
const BATCHES: u32 = 4;

/// The whole tokens of a guard, or of a bucket's headroom, until the next refill. It is filled off the
/// request path, so that a decision reads no clock.
#[derive(Default)]
pub(crate) struct GuardPool {
    tokens: AtomicU64,
    /// Number of tokens that a thread takes together.
    batch: AtomicU32,
    /// The capacity in tokens. A request that costs more passes when the pool is full, and leaves a debt.
    depth: AtomicU32,
    /// Number of tokens that only established names may take.
    reserve: AtomicU32,
    /// Tokens of requests that found too few since the last fill. A pool without depth counts none.
    missed: AtomicU32,
}

impl GuardPool {
    pub(crate) fn set_reserve(&self, reserve: f64) {
        self.reserve.store(reserve as u32, Ordering::Relaxed);
    }

    /// Sets the tokens, and the batch size for `threads` threads. The caller must begin the next
    /// refill right after this call, which voids the batches that threads hold. Returns the tokens
    /// of requests that found too few since the last call.
    pub(crate) fn fill(&self, tokens: u64, depth: f64, threads: usize) -> u32 {
        // A cast from a float saturates.
        let depth = depth as u32;
        let batches = BATCHES
            .saturating_mul(u32::try_from(threads).unwrap_or(u32::MAX))
            .max(1);
        self.batch.store(
            (depth / batches).clamp(1, TokenBatch::LEFT_MAX),
            Ordering::Relaxed,
        );
        self.depth.store(depth, Ordering::Relaxed);
        self.tokens.store(tokens, Ordering::Release);
        self.missed.swap(0, Ordering::Relaxed)
    }

    /// Takes `n` tokens out of the thread's batch and, if these are too few, a new batch out of the pool. Threads
    /// that share their counters have no batch. Returns false if there are too few tokens. The reserve is for
    /// requests of `established` names.
    pub(crate) fn take(
        &self,
        counters: CounterBlock<'_>,
        key: u32,
        refill: u16,
        n: u32,
        established: bool,
    ) -> bool {
        let (batch, left) = match counters.is_shared {
            true => (None, 0),
            false => (Some(counters.batch(key)), counters.batch(key).left(refill)),
        };
        let missing = u64::from(n.saturating_sub(left));
        let at_once = if batch.is_some() {
            u64::from(self.batch.load(Ordering::Relaxed))
        } else {
            0
        };
        let depth = u64::from(self.depth.load(Ordering::Relaxed));
        let reserve = u64::from(self.reserve.load(Ordering::Relaxed));
        let kept = if established { 0 } else { reserve };
        let mut drawn = 0;
        let draws = |tokens: u64| {
            // A batch holds no part of the reserve: any request of the thread may use it up.
            let at_once = at_once.min(tokens.saturating_sub(reserve));
            pays(tokens, left, n, depth, kept).then(|| at_once.max(missing).min(tokens))
        };
        // A batch that suffices draws no other: other threads may need those tokens.
        if missing > 0 {
            let taken = self
                .tokens
                .fetch_update(Ordering::Acquire, Ordering::Relaxed, |tokens| {
                    drawn = draws(tokens)?;
                    Some(tokens - drawn)
                });
            if taken.is_err() {
                // A pool without depth has no tokens. Threads need not contend to count that.
                if depth > 0 {
                    self.missed.fetch_add(n, Ordering::Relaxed);
                }
                return false;
            }
        }
        match batch {
            Some(batch) => {
                let left = (u64::from(left) + drawn).saturating_sub(u64::from(n));
                counters.set_batch(key, batch.after(n, left as u32, refill));
            }
            None => counters.note_used(key, i32::try_from(n).unwrap_or(i32::MAX)),
        }
        true
    }

    /// Gives back the tokens that were taken for a request of this cost, which another key then refused.
    pub(crate) fn give_back(&self, counters: CounterBlock<'_>, key: u32, refill: u16, n: u32) {
        // A cost above the capacity has taken no more than all of it.
        let depth = self.depth.load(Ordering::Relaxed);
        let taken = if n > 1 { n.min(depth) } else { n };
        if counters.is_shared {
            self.tokens.fetch_add(u64::from(taken), Ordering::Relaxed);
            counters.note_used(key, -i32::try_from(n).unwrap_or(i32::MAX));
        } else {
            let batch = counters.batch(key);
            let left = batch
                .left(refill)
                .saturating_add(taken)
                .min(TokenBatch::LEFT_MAX);
            counters.set_batch(key, batch.after(0u32.wrapping_sub(n), left, refill));
        }
    }

    /// Returns true if the pool could pay for a request of this cost. The reserve is for `established` names. Threads may
    /// hold further batches.
    pub(crate) fn pays(&self, n: u32, established: bool) -> bool {
        let tokens = self.tokens.load(Ordering::Relaxed);
        let depth = u64::from(self.depth.load(Ordering::Relaxed));
        let reserve = u64::from(self.reserve.load(Ordering::Relaxed));
        pays(tokens, 0, n, depth, if established { 0 } else { reserve })
    }

    /// True if the pool has no tokens; threads may still hold batches.
    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.load(Ordering::Relaxed) == 0
    }
}

/// Returns true if `tokens` of a pool, with the `left` ones of a thread's batch, pay for a request of cost `n` that may
/// not use the `kept` ones.
#[inline]
fn pays(tokens: u64, left: u32, n: u32, depth: u64, kept: u64) -> bool {
    let missing = u64::from(n.saturating_sub(left));
    // A cost above the capacity passes when the pool is full; otherwise it could never pass.
    let whole = n > 1 && u64::from(n) > depth && depth > 0 && tokens + u64::from(left) >= depth;
    tokens >= missing + kept || whole
}

impl Table {
    /// Takes `n` tokens for a request that the coin admits: all of its guard or all of its bucket's headroom.
    /// Returns the id of those tokens; `None` if there are too few of both.
    #[cold]
    pub(crate) fn take(&self, target: Target, n: u32, counters: CounterBlock<'_>) -> Option<u32> {
        let refill = self.refill_number();
        let established = self.own_directive(target.key).is_established();
        let take = |id: &u32| {
            self.tokens(*id)
                .is_some_and(|tokens| tokens.take(counters, *id, refill, n, established))
        };
        Some(target.source())
            .filter(take)
            .or_else(|| self.headroom_for(target).filter(take))
    }

    /// Gives `n` tokens back to the guard or headroom that they were [taken](Self::take) from.
    pub(crate) fn give_back(&self, id: u32, n: u32, counters: CounterBlock<'_>) {
        let refill = self.refill_number();
        if let Some(tokens) = self.tokens(id) {
            tokens.give_back(counters, id, refill, n);
        }
    }

    pub(crate) fn set_reserve(&self, id: u32, reserve: TokenCount) {
        self.tokens(id)
            .into_iter()
            .for_each(|pool| pool.set_reserve(reserve.as_f64()));
    }

    /// Sets the tokens of a guard or a headroom, which take effect with the next
    /// [refill](Self::refill). Returns the tokens of requests that found too few since the last call.
    pub(crate) fn fill(&self, id: u32, tokens: TokenCount, depth: TokenCount) -> u32 {
        let pool = self.tokens(id);
        debug_assert!(pool.is_some(), "{id} is no id of tokens");
        pool.map_or(0, |pool| {
            pool.fill(tokens.whole(), depth.as_f64(), self.counters.slots_used())
        })
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;
    use crate::hot::thread_counters::Counters;

    impl GuardPool {
        fn tokens(&self) -> u64 {
            self.tokens.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn token_batch_is_void_after_a_refill() {
        let (pool, counters) = (GuardPool::default(), Counters::new(1, 1));
        let block = counters.block(0);
        pool.fill(100, 100.0, 5);
        assert!(pool.take(block, 0, 1, 1, false));
        assert_eq!(
            (pool.tokens(), block.batch(0).left(1)),
            (95, 4),
            "100 / (4 * 5) at once"
        );
        assert_eq!(block.batch(0).left(2), 0);
        pool.fill(3, 100.0, 5);
        assert!(pool.take(block, 0, 2, 1, false));
        assert_eq!(
            (pool.tokens(), block.batch(0).left(2), block.batch(0).used()),
            (0, 2, 2)
        );
        pool.fill(9, 3.0, 5);
        assert!(pool.take(block, 0, 3, 1, false));
        assert_eq!(
            (pool.tokens(), block.batch(0).left(3)),
            (8, 0),
            "never less than one"
        );
    }

    #[test]
    fn batch_that_suffices_draws_no_other() {
        let (pool, counters) = (GuardPool::default(), Counters::new(1, 1));
        let block = counters.block(0);
        pool.fill(100, 100.0, 5);
        let left: Vec<u64> = (0..7)
            .map(|_| (pool.take(block, 0, 1, 1, false), pool.tokens()).1)
            .collect();
        assert_eq!(left, [95, 95, 95, 95, 95, 90, 90]);
    }

    #[test]
    fn reserve_is_kept_for_established_names() {
        let (pool, counters) = (GuardPool::default(), Counters::new(1, 1));
        let block = counters.block(0);
        pool.set_reserve(8.0);
        pool.fill(12, 16.0, 1);
        let taken = |established| {
            (0..99)
                .filter(|_| pool.take(block, 0, 1, 1, established))
                .count()
        };
        let pays = |established| pool.pays(1, established);
        assert_eq!((pays(false), pays(true)), (true, true));
        assert_eq!((taken(false), pays(false), pays(true)), (4, false, true));
        assert_eq!((taken(true), pays(true)), (8, false));
    }

    #[test]
    fn request_takes_its_whole_cost_or_nothing() {
        let (pool, counters) = (GuardPool::default(), Counters::new(1, 1));
        let block = counters.block(0);
        pool.fill(10, 10.0, 1);
        for (n, passes, tokens) in [(7, true, 3), (4, false, 3), (3, true, 0), (1, false, 0)] {
            assert_eq!(pool.take(block, 0, 1, n, false), passes, "{n}");
            assert_eq!(pool.tokens(), tokens, "{n}");
        }
        assert_eq!(block.batch(0).used(), 10);
        pool.fill(9, 10.0, 1);
        assert!(
            !pool.take(block, 0, 2, 50, false),
            "more than the depth, and the pool is not full"
        );
        pool.fill(10, 10.0, 1);
        assert!(
            pool.take(block, 0, 3, 50, false),
            "a cost above the depth needs a full pool"
        );
        assert_eq!(
            (pool.tokens(), block.batch(0).used()),
            (0, 60),
            "the debt is recorded"
        );
        pool.fill(0, 0.0, 1);
        assert!(
            !pool.take(block, 0, 4, 50, false),
            "a depth of 0 admits nothing"
        );
    }

    #[test]
    fn returned_tokens_can_be_taken_again() {
        let counters = Counters::new(1, 2);
        for block in [counters.block(1), counters.shared_block()] {
            let pool = GuardPool::default();
            pool.fill(5, 5.0, 1);
            assert!(pool.take(block, 0, 1, 5, false));
            pool.give_back(block, 0, 1, 5);
            assert_eq!(block.batch(0).used(), 0);
            assert!(pool.take(block, 0, 1, 5, false));
            assert!(!pool.take(block, 0, 1, 1, false));
        }
    }

    #[test]
    fn excessive_return_creates_no_tokens() {
        let counters = Counters::new(1, 2);
        for block in [counters.block(1), counters.shared_block()] {
            let pool = GuardPool::default();
            pool.fill(5, 5.0, 1);
            assert!(pool.take(block, 0, 1, 50, false));
            pool.give_back(block, 0, 1, 50);
            assert_eq!(block.batch(0).used(), 0);
            assert_eq!(
                (0..9).filter(|_| pool.take(block, 0, 1, 1, false)).count(),
                5
            );
        }
    }
}
