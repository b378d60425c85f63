//! The counters of one limiter: a block for each thread slot, a shared block for threads without a
//! slot, and a block for each shard.

mod block;
mod passes;
mod quotas;
mod rows;
pub(crate) mod slots;
mod token_batch;

pub(crate) use block::{CounterBlock, CounterRow, Counters, Outcome};
pub(crate) use passes::Passes;
pub use passes::{Pass, TenantFound};
pub(crate) use quotas::QuotaOutcome;
pub(crate) use rows::{Row, Rows};
pub(crate) use token_batch::TokenBatch;

use std::sync::{Arc, Mutex};

use plimsoll_core::report::Counts;
use quotas::QuotaCounters;

use crate::hot::sync::lock;

/// Every counter block of one limiter. The blocks of thread slots are allocated at the start, so that a
/// thread's first decision allocates nothing. The fields that a decision reads come first, in one cache
/// line.
#[repr(C, align(64))]
pub(crate) struct ThreadCounters {
    slots: usize,
    of_slots: Counters,
    /// The block that threads without a slot share.
    overflow: Counters,
    pub(crate) quotas: QuotaCounters,
    shards: Mutex<Vec<Arc<Counters>>>,
}

impl ThreadCounters {
    /// Makes blocks for `slots` threads at a time; further threads share one.
    pub(crate) fn new(keys: usize, slots: usize) -> Self {
        Self {
            slots,
            of_slots: Counters::new(keys, slots),
            overflow: Counters::new(keys, 1),
            quotas: QuotaCounters::new(keys),
            shards: Mutex::default(),
        }
    }

    #[inline]
    pub(crate) fn current_thread(&self) -> CounterBlock<'_> {
        match slots::current(self.slots) {
            Some(slot) => self.of_slots.block(slot),
            None => self.overflow.shared_block(),
        }
    }

    /// Adds a block for a shard. Its counts are kept when the shard is dropped.
    pub(crate) fn add_shard(&self) -> Arc<Counters> {
        let block = Arc::new(Counters::new(self.of_slots.keys, 1));
        lock(&self.shards).push(Arc::clone(&block));
        block
    }

    pub(crate) fn slots_used(&self) -> usize {
        slots::high_watermark().min(self.slots)
    }

    pub(crate) fn counts(&self, key: u32) -> Counts {
        // Before the decisions, so that no refusal of a quota is seen without the request that it is about.
        let by_quotas = self.quotas.counts(key);
        self.fold(by_quotas, |counts, block| counts.plus(block.counts(key)))
    }

    /// Sums the used tokens of a key's guard, modulo 2^32.
    pub(crate) fn used(&self, key: u32) -> u32 {
        self.fold(0, |used: u32, block| {
            used.wrapping_add(block.batch(key).used())
        })
    }

    fn fold<T>(&self, zero: T, mut f: impl FnMut(T, CounterBlock<'_>) -> T) -> T {
        let mut sum = f(zero, self.overflow.shared_block());
        for slot in 0..self.slots_used() {
            sum = f(sum, self.of_slots.block(slot));
        }
        let shards = lock(&self.shards);
        shards.iter().fold(sum, |sum, shard| f(sum, shard.block(0)))
    }
}
