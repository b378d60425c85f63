//! The kill generations and the drill number that one process holds, which are merged by `max` on every
//! message.

use std::collections::BTreeMap;

use super::drill::Drill;
use super::{Kill, KillGeneration, Scope};
use crate::decision::Mode;
use crate::directive::{BucketDirective, Directives, StaleDirective, Terms};
use crate::names::Bucket;

/// The maximum number of buckets with a generation of their own: one per bucket that was ever killed alone,
/// never freed.
pub const KILLED_BUCKETS_MAX: usize = 1_024;

/// The error of killing one more bucket alone than [`KILLED_BUCKETS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{KILLED_BUCKETS_MAX} buckets have been killed alone, the maximum; omit the bucket to kill the whole fleet"
)]
pub struct KilledBucketsFull;

/// The kill generations of a process. Changes are numbered, so that a message can carry only the ones since
/// the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kills {
    fleet: KillGeneration,
    /// By bucket: the generation, and the number of its last change.
    buckets: BTreeMap<Bucket, (KillGeneration, u64)>,
    drill: Drill,
    version: u64,
    /// The number of times a bucket's generation was ignored for want of room.
    rejected: u64,
}

impl Kills {
    /// The generation of the whole fleet.
    pub const fn fleet(&self) -> KillGeneration {
        self.fleet
    }

    /// The generation of a bucket alone; 0 if it was never killed alone.
    pub fn bucket(&self, bucket: &Bucket) -> KillGeneration {
        self.buckets.get(bucket).map_or(KillGeneration(0), |(generation, _)| *generation)
    }

    /// The generation of a scope.
    pub fn generation(&self, scope: &Scope) -> KillGeneration {
        match scope {
            Scope::Fleet => self.fleet,
            Scope::Bucket(bucket) => self.bucket(bucket),
        }
    }

    /// The two generations that concern a bucket.
    pub fn of(&self, bucket: &Bucket) -> Kill {
        Kill { fleet: self.fleet, bucket: self.bucket(bucket) }
    }

    /// The mode in force for a bucket with these terms; see [`Kill::mode`].
    pub fn mode(&self, bucket: &Bucket, terms: &Terms) -> Mode {
        self.of(bucket).mode(terms.mode, terms.kill)
    }

    /// All buckets that were ever killed alone, in the order of names.
    pub fn buckets(&self) -> impl Iterator<Item = (&Bucket, KillGeneration)> {
        self.buckets.iter().map(|(bucket, (generation, _))| (bucket, *generation))
    }

    /// The latest drill.
    pub const fn drill(&self) -> Drill {
        self.drill
    }

    /// The number of the latest change of a generation; 0 before the first. Drills are not counted.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The generations of buckets that were dropped for want of room.
    pub const fn rejected(&self) -> u64 {
        self.rejected
    }

    /// The generations of buckets that changed since version `seen`. Linear in the buckets ever killed.
    pub fn since(&self, seen: u64) -> BTreeMap<Bucket, KillGeneration> {
        if seen >= self.version {
            return BTreeMap::new();
        }
        let later = self.buckets.iter().filter(|(_, (_, changed))| *changed > seen);
        later.map(|(bucket, (generation, _))| (bucket.clone(), *generation)).collect()
    }

    /// Checks that a peer may hold these generations.
    ///
    /// # Errors
    /// The first pair of a held and a claimed generation in which the claim is too far above.
    pub fn check(
        &self,
        fleet: KillGeneration,
        buckets: &BTreeMap<Bucket, KillGeneration>,
    ) -> Result<(), (KillGeneration, KillGeneration)> {
        let of_buckets = buckets.iter().map(|(bucket, got)| (self.bucket(bucket), *got));
        let mut all = std::iter::once((self.fleet, fleet)).chain(of_buckets);
        all.find(|(held, got)| !held.accepts(*got)).map_or(Ok(()), Err)
    }

    /// Checks and merges the generations of a parent's message. Returns true if any changed.
    ///
    /// # Errors
    /// [`StaleDirective::KillJump`] if the parent claims a generation too far above the one held; nothing is
    /// merged.
    pub fn merge_directives(&mut self, directives: &Directives) -> Result<bool, StaleDirective> {
        let jump = |(held, got)| StaleDirective::KillJump { held, got };
        self.check(directives.kill, &directives.kills).map_err(jump)?;
        Ok(self.merge(directives.kill, &directives.kills))
    }

    /// Caps the generations that a parent's decision claims to know at the ones held; see
    /// [`Kill::capped_at`].
    pub fn cap_knowledge(&self, directive: &mut BucketDirective) {
        directive.terms.kill = directive.terms.kill.capped_at(self.of(&directive.bucket));
    }

    /// Merges the generations of a peer, which the caller has checked. Returns true if any changed.
    pub fn merge(&mut self, fleet: KillGeneration, buckets: &BTreeMap<Bucket, KillGeneration>) -> bool {
        let mut changed = self.raise(&Scope::Fleet, fleet);
        for (bucket, generation) in buckets {
            changed |= self.raise(&Scope::Bucket(bucket.clone()), *generation);
        }
        changed
    }

    /// Takes a larger generation of a scope. Returns true if it changed.
    pub fn raise(&mut self, scope: &Scope, generation: KillGeneration) -> bool {
        if generation <= self.generation(scope) {
            return false;
        }
        match scope {
            Scope::Fleet => self.fleet = generation,
            Scope::Bucket(bucket) => {
                if !self.has_room(scope) {
                    self.rejected += 1;
                    return false;
                }
                self.buckets.insert(bucket.clone(), (generation, self.version + 1));
            }
        }
        self.version += 1;
        true
    }

    /// Returns true if a scope has a generation, or there is room for one more.
    pub fn has_room(&self, scope: &Scope) -> bool {
        let has_room = |bucket| self.buckets.len() < KILLED_BUCKETS_MAX || self.buckets.contains_key(bucket);
        scope.bucket().is_none_or(has_room)
    }

    /// Takes a later drill. Returns true if it is later, and not too far ahead to be plausible.
    pub fn merge_drill(&mut self, drill: Drill) -> bool {
        let is_new = drill > self.drill && self.drill.accepts(drill);
        if is_new {
            self.drill = drill;
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bucket(number: usize) -> Bucket {
        Bucket::new(&format!("b{number}")).unwrap()
    }

    fn some(generations: &[(usize, u64)]) -> BTreeMap<Bucket, KillGeneration> {
        generations
            .iter()
            .map(|(number, generation)| (bucket(*number), KillGeneration(*generation)))
            .collect()
    }

    #[test]
    fn since_returns_only_later_changes() {
        let mut kills = Kills::default();
        assert!(kills.merge(KillGeneration(0), &some(&[(1, 1), (2, 3)])));
        let seen = kills.version();
        assert_eq!(kills.since(0), some(&[(1, 1), (2, 3)]));
        assert!(kills.since(seen).is_empty());
        assert!(!kills.merge(KillGeneration(0), &some(&[(1, 1), (2, 2)])), "older ones change nothing");
        assert!(kills.merge(KillGeneration(0), &some(&[(2, 4)])));
        assert_eq!(kills.since(seen), some(&[(2, 4)]));
        assert!(kills.merge(KillGeneration(1), &some(&[])));
        assert!(
            kills.since(seen + 1).is_empty() && kills.version() > seen + 1,
            "the fleet's generation is not among the buckets"
        );
    }

    #[test]
    fn implausible_generations_are_rejected_and_those_without_room_are_counted() {
        let mut kills = Kills::default();
        let far = u64::MAX;
        assert_eq!(kills.check(KillGeneration(1), &some(&[(1, 7)])), Ok(()));
        assert!(kills.check(KillGeneration(far), &some(&[])).is_err());
        assert!(kills.check(KillGeneration(0), &some(&[(1, 7), (2, far)])).is_err());
        let all: BTreeMap<_, _> =
            (0..KILLED_BUCKETS_MAX).map(|number| (bucket(number), KillGeneration(1))).collect();
        kills.merge(KillGeneration(0), &all);
        let one_more = Scope::Bucket(bucket(KILLED_BUCKETS_MAX));
        let known = Scope::Bucket(bucket(0));
        assert!(!kills.has_room(&one_more) && kills.has_room(&known));
        assert!(!kills.raise(&one_more, KillGeneration(1)));
        assert_eq!(kills.rejected(), 1);
        assert!(kills.raise(&known, KillGeneration(2)));
    }

    #[test]
    fn drills_only_advance_and_change_no_generation() {
        let mut kills = Kills::default();
        assert!(kills.merge_drill(Drill(3)) && !kills.merge_drill(Drill(3)) && !kills.merge_drill(Drill(2)));
        assert!(!kills.merge_drill(Drill(u64::MAX)), "no later drill would be possible");
        assert_eq!((kills.version(), kills.fleet()), (0, KillGeneration(0)));
    }

    proptest! {
        #[test]
        fn merge_is_independent_of_order_and_repetition(
            mut messages in prop::collection::vec((0..9u64, prop::collection::vec((0..4usize, 0..9u64), 0..3)), 0..12),
        ) {
            let held = |messages: &[(u64, Vec<(usize, u64)>)]| {
                let mut kills = Kills::default();
                messages.iter().for_each(|(fleet, buckets)| {
                    kills.merge(KillGeneration(*fleet), &some(buckets));
                });
                (kills.fleet(), kills.since(0))
            };
            let forward = held(&messages);
            messages.reverse();
            let twice = [messages.clone(), messages].concat();
            prop_assert_eq!(forward, held(&twice));
        }
    }
}
