//! The counters of one limiter: a block for each thread slot, one that threads without a slot share, and
//! those of shards.

mod block;
mod token_batch;

pub(crate) use block::{CounterBlock, CounterRow, Outcome};
pub(crate) use token_batch::TokenBatch;

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_core::report::Counts;

use crate::hot::thread_slots;

/// Every counter block of one limiter. The blocks of thread slots are allocated at the start, so that a
/// thread's first decision allocates nothing.
#[derive(Debug)]
pub(crate) struct ThreadCounters {
    keys: usize,
    of_slots: Box<[CounterBlock]>,
    /// The block that threads without a slot share.
    overflow: CounterBlock,
    shards: Mutex<Vec<Arc<CounterBlock>>>,
}

impl ThreadCounters {
    /// Makes blocks for `slots` threads at a time; further threads share one.
    pub(crate) fn new(keys: usize, slots: usize) -> Self {
        Self {
            keys,
            of_slots: (0..slots).map(|_| CounterBlock::new(keys)).collect(),
            overflow: CounterBlock::shared(keys),
            shards: Mutex::default(),
        }
    }

    /// Returns the block that the current thread writes to.
    #[inline]
    pub(crate) fn current_thread(&self) -> &CounterBlock {
        let own = thread_slots::current(self.of_slots.len()).and_then(|slot| self.of_slots.get(slot));
        own.unwrap_or(&self.overflow)
    }

    /// Adds a block for a shard. Its counts are kept when the shard is dropped.
    pub(crate) fn add_shard(&self) -> Arc<CounterBlock> {
        let block = Arc::new(CounterBlock::new(self.keys));
        self.shards.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&block));
        block
    }

    /// Returns the number of slots that were ever taken.
    pub(crate) fn slots_used(&self) -> usize {
        thread_slots::high_watermark().min(self.of_slots.len())
    }

    /// Sums the counts of a key.
    pub(crate) fn counts(&self, key: u32) -> Counts {
        self.fold(Counts::ZERO, |counts, block| counts.plus(block.counts(key)))
    }

    /// Sums the used tokens of a key's guard, modulo 2^32.
    pub(crate) fn used(&self, key: u32) -> u32 {
        self.fold(0, |used: u32, block| used.wrapping_add(block.batch(key).used()))
    }

    fn fold<T>(&self, zero: T, mut f: impl FnMut(T, &CounterBlock) -> T) -> T {
        let threads = self.of_slots.iter().take(self.slots_used()).chain([&self.overflow]).fold(zero, &mut f);
        let shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        shards.iter().fold(threads, |sum, block| f(sum, block))
    }
}
