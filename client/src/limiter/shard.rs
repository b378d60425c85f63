//! One owner's part of a limiter: where a decision's randomness comes from, and its coins stand, when nothing may be
//! ambient.

use std::fmt;
use std::sync::Arc;

use plimsoll_core::decision::Verdict;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::hot::decision::Desk;
use crate::limiter::KeyHandle;
use crate::hot::thread_counters::Slab;
use crate::hot::table::Table;

/// Decides like its [`Limiter`](crate::Limiter), with coins and a generator of its own, seeded by whoever makes it.
///
/// Services need none: their threads have generators already. It is for callers that must be able to do the very
/// same thing twice, such as a simulation.
pub struct Shard {
    table: Arc<Table>,
    generator: SmallRng,
    slab: Arc<Slab>,
}

impl Shard {
    pub(crate) fn new(table: Arc<Table>, seed: u64) -> Self {
        let slab = table.slabs.of_shard();
        Self { table, generator: SmallRng::seed_from_u64(seed), slab }
    }

    /// Decides for a key of the limiter that this shard belongs to.
    #[inline]
    pub fn admit(&mut self, key: &KeyHandle) -> Verdict {
        debug_assert!(Arc::ptr_eq(&self.table, &key.table), "the key belongs to another limiter");
        self.table.decide(key.place, &mut Desk { slab: &self.slab, draws: &mut self.generator })
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use crate::Limiter;
    use crate::hot::directive_word::Word;
    use plimsoll_core::names::{Name, Zone};
    use plimsoll_core::quantity::DropRatio;
    use plimsoll_core::report::{Identity, InstanceId, Role};

    fn verdicts(seed: u64) -> Vec<bool> {
        let identity = Identity {
            instance: InstanceId(1),
            name: Name::new("shop-1").unwrap(),
            service: Name::new("shop").unwrap(),
            zone: Zone::new("z").unwrap(),
            role: Role::Client,
        };
        let (limiter, mut subscription) = Limiter::detached(identity, 8, 0, seed);
        let key = limiter.bucket("b").unwrap().key("acme");
        let half = Word::new(DropRatio::new(DropRatio::ONE / 2).unwrap());
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
    fn the_same_seed_decides_the_same_and_another_does_not() {
        let admitted = verdicts(7).iter().filter(|admitted| **admitted).count();
        assert!((400..600).contains(&admitted), "{admitted} of 1,000 at one half");
        assert_eq!(verdicts(7), verdicts(7));
        assert_ne!(verdicts(7), verdicts(8));
    }
}
