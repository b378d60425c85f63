//! The shard: a part of a limiter with counters and a random generator of its own, so that its decisions
//! depend on one seed alone.

use std::sync::Arc;

use plimsoll_core::decision::Verdict;

use crate::hot::decision::DecideCtx;
use crate::hot::rng::SeededDraws;
use crate::hot::table::Table;
use crate::hot::thread_counters::Counters;
use crate::limiter::{BucketHandle, Decided, KeyHandle};

/// Decides like its [`Limiter`](crate::Limiter), with coin states and a random generator of its own, seeded
/// by the caller.
///
/// Services need no shard, because each thread has a generator. A shard is for callers whose runs must be
/// reproducible, such as a simulation.
#[derive(Debug)]
pub struct Shard {
    table: Arc<Table>,
    draws: SeededDraws,
    counters: Arc<Counters>,
}

impl Shard {
    pub(crate) fn new(table: Arc<Table>, seed: u64) -> Self {
        let counters = table.counters.add_shard();
        Self { table, draws: SeededDraws::new(seed), counters }
    }

    /// Decides for a key of the limiter that this shard belongs to.
    #[inline]
    pub fn admit(&mut self, key: &KeyHandle) -> Verdict {
        debug_assert!(Arc::ptr_eq(&self.table, &key.table), "the key belongs to another limiter");
        self.table
            .decide(key.target(), DecideCtx { counters: self.counters.block(0), draws: &mut self.draws })
    }

    /// Decides for a request of a tenant that counts as `cost` requests, and says which refusal was not carried out.
    #[inline]
    pub fn decide(&mut self, bucket: &BucketHandle, tenant: &str, cost: u32) -> Decided {
        debug_assert!(Arc::ptr_eq(&self.table, &bucket.table), "the bucket belongs to another limiter");
        let ctx = DecideCtx { counters: self.counters.block(0), draws: &mut self.draws };
        self.table.decide_in_full(self.table.target(bucket.place, tenant), cost, None, ctx)
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use plimsoll_core::quantity::DropRatio;

    use super::super::tests::with_keys;
    use crate::hot::directive_word::DirectiveWord;

    fn verdicts(seed: u64) -> Vec<bool> {
        let (limiter, mut subscription) = with_keys(8, seed);
        let key = limiter.bucket("b").unwrap().key("acme");
        let half = DirectiveWord::new(DropRatio::new(DropRatio::ONE / 2).unwrap());
        limiter.table.publish(key.place.default_key, half.enforced(true));
        let mut shard = limiter.shard(seed);
        let verdicts: Vec<bool> = (0..1_000).map(|_| shard.admit(&key).is_admit()).collect();
        let counts = key.counts();
        assert_eq!(counts.offered, 1_000);
        assert_eq!(counts.admitted(), verdicts.iter().filter(|admitted| **admitted).count() as u64);
        assert_eq!(subscription.counts().values().map(|counts| counts.offered).sum::<u64>(), 1_000);
        verdicts
    }

    #[test]
    fn equal_seeds_decide_alike_and_different_seeds_do_not() {
        let admitted = verdicts(7).iter().filter(|admitted| **admitted).count();
        assert!((400..600).contains(&admitted), "{admitted} of 1,000 at one half");
        assert_eq!(verdicts(7), verdicts(7));
        assert_ne!(verdicts(7), verdicts(8));
    }
}
