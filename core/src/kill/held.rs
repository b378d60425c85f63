//! Every number that is merged by `max` on every message in both directions, as one process holds them: the fleet's kill
//! generation, those of buckets, and the latest drill.

use std::collections::BTreeMap;

use super::{Kill, KillGeneration, Scope};
use crate::decision::Mode;
use crate::directive::Terms;
use crate::kill::drill::Drill;
use crate::names::Bucket;

/// The most buckets that have a generation of their own, because they were killed alone at some time.
pub const KILLED_BUCKETS_MAX: usize = 1_024;

/// There is no room for another bucket that is killed alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{KILLED_BUCKETS_MAX} buckets have been killed alone, which is the most; kill the whole fleet, without a bucket"
)]
pub struct NoRoom;

/// The kill generations held. Numbers its changes, so that a reader can be told only what changed since it last looked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kills {
    fleet: KillGeneration,
    /// By bucket, each with the change that brought it.
    buckets: BTreeMap<Bucket, (KillGeneration, u64)>,
    drill: Drill,
    version: u64,
    /// Generations of buckets for which there was no room.
    homeless: u64,
}

impl Kills {
    /// The generation of the whole fleet.
    #[must_use]
    pub const fn fleet(&self) -> KillGeneration {
        self.fleet
    }

    /// The generation of a bucket alone; 0 for one that was never killed.
    #[must_use]
    pub fn bucket(&self, bucket: &Bucket) -> KillGeneration {
        self.buckets.get(bucket).map_or(KillGeneration(0), |(generation, _)| *generation)
    }

    /// The generation of what is named.
    #[must_use]
    pub fn generation(&self, scope: &Scope) -> KillGeneration {
        match scope {
            Scope::Fleet => self.fleet,
            Scope::Bucket(bucket) => self.bucket(bucket),
        }
    }

    /// Those that concern a bucket.
    #[must_use]
    pub fn of(&self, bucket: &Bucket) -> Kill {
        Kill { fleet: self.fleet, bucket: self.bucket(bucket) }
    }

    /// What is left of the mode that a bucket's terms tell; see [`Kill::of`].
    #[must_use]
    pub fn mode(&self, bucket: &Bucket, terms: &Terms) -> Mode {
        self.of(bucket).of(terms.mode, terms.kill)
    }

    /// Every bucket that was ever killed alone, in the order of names.
    pub fn buckets(&self) -> impl Iterator<Item = (&Bucket, KillGeneration)> {
        self.buckets.iter().map(|(bucket, (generation, _))| (bucket, *generation))
    }

    /// The latest drill heard of.
    #[must_use]
    pub const fn drill(&self) -> Drill {
        self.drill
    }

    /// The number of the latest change of a generation; 0 before the first. A drill is none.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// How often the generation of a bucket found no room.
    #[must_use]
    pub const fn homeless(&self) -> u64 {
        self.homeless
    }

    /// The generations of buckets that changed since version `seen`. Linear in the buckets ever killed.
    #[must_use]
    pub fn since(&self, seen: u64) -> BTreeMap<Bucket, KillGeneration> {
        if seen >= self.version {
            return BTreeMap::new();
        }
        let news = self.buckets.iter().filter(|(_, (_, changed))| *changed > seen);
        news.map(|(bucket, (generation, _))| (bucket.clone(), *generation)).collect()
    }

    /// Whether a peer may truly hold these generations.
    ///
    /// # Errors
    /// The first pair of a generation held and one that is too far above it to be true.
    pub fn check(
        &self,
        fleet: KillGeneration,
        buckets: &BTreeMap<Bucket, KillGeneration>,
    ) -> Result<(), (KillGeneration, KillGeneration)> {
        let of_buckets = buckets.iter().map(|(bucket, got)| (self.bucket(bucket), *got));
        let mut all = std::iter::once((self.fleet, fleet)).chain(of_buckets);
        all.find(|(held, got)| !held.believes(*got)).map_or(Ok(()), Err)
    }

    /// Takes over what is larger of a peer's generations; true when that changed anything.
    pub fn merge(&mut self, fleet: KillGeneration, buckets: &BTreeMap<Bucket, KillGeneration>) -> bool {
        let mut changed = self.raise(&Scope::Fleet, fleet);
        for (bucket, generation) in buckets {
            changed |= self.raise(&Scope::Bucket(bucket.clone()), *generation);
        }
        changed
    }

    /// Takes over a larger generation of what is named; true when that changed anything.
    pub fn raise(&mut self, scope: &Scope, generation: KillGeneration) -> bool {
        if generation <= self.generation(scope) {
            return false;
        }
        match scope {
            Scope::Fleet => self.fleet = generation,
            Scope::Bucket(bucket) => {
                if !self.has_room(bucket) {
                    self.homeless += 1;
                    return false;
                }
                self.buckets.insert(bucket.clone(), (generation, self.version + 1));
            }
        }
        self.version += 1;
        true
    }

    /// Whether a bucket has a generation of its own, or there is room for one.
    #[must_use]
    pub fn has_room(&self, bucket: &Bucket) -> bool {
        self.buckets.len() < KILLED_BUCKETS_MAX || self.buckets.contains_key(bucket)
    }

    /// The same of what is named; for the fleet there always is.
    #[must_use]
    pub fn has_room_for(&self, scope: &Scope) -> bool {
        scope.bucket().is_none_or(|bucket| self.has_room(bucket))
    }

    /// Takes over a later drill; true when it is one. One too far ahead to be true is none.
    pub fn hear_drill(&mut self, drill: Drill) -> bool {
        let is_new = drill > self.drill && self.drill.believes(drill);
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
    fn a_reader_is_told_what_changed_since_it_looked() {
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
            "the fleet's stands elsewhere"
        );
    }

    #[test]
    fn what_cannot_be_true_is_found_and_what_finds_no_room_is_counted() {
        let mut kills = Kills::default();
        let far = u64::MAX;
        assert_eq!(kills.check(KillGeneration(1), &some(&[(1, 7)])), Ok(()));
        assert!(kills.check(KillGeneration(far), &some(&[])).is_err());
        assert!(kills.check(KillGeneration(0), &some(&[(1, 7), (2, far)])).is_err());
        let all: BTreeMap<_, _> =
            (0..KILLED_BUCKETS_MAX).map(|number| (bucket(number), KillGeneration(1))).collect();
        kills.merge(KillGeneration(0), &all);
        let one_more = bucket(KILLED_BUCKETS_MAX);
        assert!(!kills.has_room(&one_more) && kills.has_room(&bucket(0)));
        assert!(!kills.raise(&Scope::Bucket(one_more), KillGeneration(1)));
        assert_eq!(kills.homeless(), 1);
        assert!(kills.raise(&Scope::Bucket(bucket(0)), KillGeneration(2)));
    }

    #[test]
    fn drills_go_forward_and_leave_the_generations_alone() {
        let mut kills = Kills::default();
        assert!(kills.hear_drill(Drill(3)) && !kills.hear_drill(Drill(3)) && !kills.hear_drill(Drill(2)));
        assert!(!kills.hear_drill(Drill(u64::MAX)), "nobody could ever drill again");
        assert_eq!((kills.version(), kills.fleet()), (0, KillGeneration(0)));
    }

    proptest! {
        #[test]
        fn messages_in_any_order_and_any_number_of_times_end_the_same(
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
