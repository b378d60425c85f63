//! The kill generations and the drill number that one process holds. Every message of a parent is merged into them
//! by `max`.

use std::collections::BTreeMap;

use super::drill::Drill;
use super::{Kill, KillGeneration, KillNews, SENT_MAX, Scope};
use crate::decision::Mode;
use crate::directive::{BucketDirective, Directives, StaleDirective, Terms};
use crate::names::Bucket;
use crate::report::Report;

/// Maximum number of buckets with their own generation: one per bucket that had its own kill, until
/// the controller forgets kills that have ended.
pub const KILLED_BUCKETS_MAX: usize = 1_024;
/// The number of them from which on child aggregators and evidence add none; the rest is for operators at this
/// process, and for its parent.
pub const LEARNED_BUCKETS_MAX: usize = KILLED_BUCKETS_MAX / 2;

/// The error of a separate kill of one more bucket than [`KILLED_BUCKETS_MAX`].
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
    /// Kills of buckets with a generation up to this one have ended, and the controller has forgotten them.
    pub(crate) forgotten: KillGeneration,
    drill: Drill,
    /// The highest drill number that a child has claimed.
    pub claimed_drill: Drill,
    version: u64,
    /// The number of times a bucket's generation was ignored for want of room.
    rejected: u64,
}

impl Kills {
    /// The generation of the whole fleet.
    pub const fn fleet(&self) -> KillGeneration {
        self.fleet
    }

    /// The generation of a bucket itself; 0 if it never had its own kill, or that is forgotten.
    pub fn bucket(&self, bucket: &Bucket) -> KillGeneration {
        self.buckets
            .get(bucket)
            .map_or(KillGeneration(0), |(generation, _)| *generation)
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
        Kill {
            fleet: self.fleet,
            bucket: self.bucket(bucket),
        }
    }

    /// The current mode for a bucket with these terms; see [`Kill::mode`].
    pub fn mode(&self, bucket: &Bucket, terms: &Terms) -> Mode {
        self.of(bucket).mode(terms.mode, terms.kill)
    }

    /// All buckets with their own generation, in the order of names.
    pub fn buckets(&self) -> impl Iterator<Item = (&Bucket, KillGeneration)> {
        self.buckets
            .iter()
            .map(|(bucket, (generation, _))| (bucket, *generation))
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

    /// The generations of buckets that changed since version `seen`. Linear in the buckets with a generation.
    pub fn since(&self, seen: u64) -> BTreeMap<Bucket, KillGeneration> {
        if seen >= self.version {
            return BTreeMap::new();
        }
        let later = self
            .buckets
            .iter()
            .filter(|(_, (_, changed))| *changed > seen);
        later
            .map(|(bucket, (generation, _))| (bucket.clone(), *generation))
            .collect()
    }

    /// Returns what a message says that follows version `seen`. The relay adds the orders.
    pub fn news(&self, seen: u64) -> KillNews {
        KillNews {
            fleet: self.fleet,
            buckets: self.since(seen),
            drill: self.drill,
            ..KillNews::default()
        }
    }

    /// Merges the generations of a parent's message. If that names a controller, kills that have ended are also
    /// forgotten. Returns true if any changed.
    ///
    /// # Errors
    /// [`StaleDirective::KillJump`] if a generation is higher than any sound process sends; nothing is merged.
    pub fn merge_directives(&mut self, directives: &Directives) -> Result<bool, StaleDirective> {
        let all = directives
            .kills
            .buckets
            .values()
            .chain([&directives.kills.fleet, &directives.lead.forgotten]);
        if let Some(got) = all.copied().find(|got| got.0 > SENT_MAX) {
            return Err(StaleDirective::KillJump {
                held: self.fleet,
                got,
            });
        }
        let has_forgotten =
            directives.lead.leader.is_some() && self.forget(directives.lead.forgotten);
        Ok(self.merge(directives.kills.fleet, &directives.kills.buckets) || has_forgotten)
    }

    /// Forgets the buckets with a generation up to `through`: their kills have ended. Returns true if there were
    /// any.
    pub fn forget(&mut self, through: KillGeneration) -> bool {
        let before = self.buckets.len();
        if self.forgotten.merge(through) {
            self.buckets
                .retain(|_, (generation, _)| *generation > through);
        }
        let has_forgotten = self.buckets.len() < before;
        self.version += u64::from(has_forgotten);
        has_forgotten
    }

    /// Sets a scope back to the generation that it had before evidence raised it; 0 removes a bucket.
    pub(super) fn restore(&mut self, scope: &Scope, generation: KillGeneration) {
        self.version += 1;
        match scope {
            Scope::Fleet => self.fleet = generation,
            Scope::Bucket(bucket) if generation == KillGeneration(0) => {
                self.buckets.remove(bucket);
            }
            Scope::Bucket(bucket) => {
                self.buckets
                    .insert(bucket.clone(), (generation, self.version));
            }
        }
    }

    /// Caps the generations that a parent's decision claims to know at the ones held; see
    /// [`Kill::capped_at`].
    pub fn cap_knowledge(&self, directive: &mut BucketDirective) {
        directive.terms.kill = directive.terms.kill.capped_at(self.of(&directive.bucket));
    }

    /// Merges generations that the caller trusts. Returns true if any changed.
    pub fn merge(
        &mut self,
        fleet: KillGeneration,
        buckets: &BTreeMap<Bucket, KillGeneration>,
    ) -> bool {
        let mut changed = self.raise(&Scope::Fleet, fleet);
        for (bucket, generation) in buckets {
            changed |= self.raise(&Scope::Bucket(bucket.clone()), *generation);
        }
        changed
    }

    /// Kills a scope or ends its kill, with the next generation unless it is so already. Returns true if it changed.
    pub(super) fn switch(&mut self, scope: &Scope, killed: bool) -> bool {
        self.raise(scope, self.generation(scope).switched(killed))
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
                self.buckets
                    .insert(bucket.clone(), (generation, self.version + 1));
            }
        }
        self.version += 1;
        true
    }

    /// Returns true if a scope has a generation, or there is room for one more.
    pub fn has_room(&self, scope: &Scope) -> bool {
        self.has_room_below(scope, KILLED_BUCKETS_MAX)
    }

    /// Returns true if a scope has a generation, or there is room for one more that a child brings.
    pub(super) fn has_room_to_learn(&self, scope: &Scope) -> bool {
        self.has_room_below(scope, LEARNED_BUCKETS_MAX)
    }

    /// Returns true if a scope has a generation, or there is room for one more that is only a
    /// claim. It leaves room for orders of children.
    pub(super) fn has_room_for_evidence(&self, scope: &Scope) -> bool {
        self.has_room_below(scope, LEARNED_BUCKETS_MAX / 2)
    }

    fn has_room_below(&self, scope: &Scope, bound: usize) -> bool {
        let has_room = |bucket| self.buckets.len() < bound || self.buckets.contains_key(bucket);
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

    /// Notes the drill numbers in a child's report. They start no drill, but the next one has a higher number,
    /// so that the child takes part in it.
    pub fn note_drill(&mut self, report: &Report) {
        for claimed in [report.kills.drill, report.kills_below.drill] {
            if claimed > self.claimed_drill && self.drill.accepts(claimed) {
                self.claimed_drill = claimed;
            }
        }
    }

    /// The number of the next drill.
    pub fn next_drill(&self) -> Drill {
        self.drill.max(self.claimed_drill).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directive::{Epoch, SentLead};
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
        assert!(
            !kills.merge(KillGeneration(0), &some(&[(1, 1), (2, 2)])),
            "older ones change nothing"
        );
        assert!(kills.merge(KillGeneration(0), &some(&[(2, 4)])));
        assert_eq!(kills.since(seen), some(&[(2, 4)]));
        assert!(kills.merge(KillGeneration(1), &some(&[])));
        assert!(
            kills.since(seen + 1).is_empty() && kills.version() > seen + 1,
            "the fleet's generation is not among the buckets"
        );
    }

    #[test]
    fn implausible_generations_are_rejected_and_counted() {
        let mut kills = Kills::default();
        for (fleet, bucket) in [(u64::MAX, 0), (0, u64::MAX)] {
            let kills_of = some(&[(1, 7), (2, bucket)]);
            let message = Directives {
                kills: KillNews {
                    fleet: KillGeneration(fleet),
                    buckets: kills_of,
                    ..KillNews::default()
                },
                ..Directives::default()
            };
            assert!(matches!(
                kills.merge_directives(&message),
                Err(StaleDirective::KillJump { .. })
            ));
        }
        assert_eq!(kills, Kills::default());
        let all: BTreeMap<_, _> = (0..KILLED_BUCKETS_MAX)
            .map(|number| (bucket(number), KillGeneration(1)))
            .collect();
        kills.merge(KillGeneration(0), &all);
        let one_more = Scope::Bucket(bucket(KILLED_BUCKETS_MAX));
        let known = Scope::Bucket(bucket(0));
        assert!(!kills.has_room(&one_more) && kills.has_room(&known));
        assert!(!kills.raise(&one_more, KillGeneration(1)));
        assert_eq!(kills.rejected(), 1);
        assert!(kills.raise(&known, KillGeneration(2)));
    }

    #[test]
    fn only_a_controller_forgets_kills() {
        let mut kills = Kills::default();
        kills.merge(KillGeneration(5), &some(&[(1, 1), (2, 2), (3, 3)]));
        let mut message = Directives {
            lead: SentLead {
                forgotten: KillGeneration(2),
                ..SentLead::default()
            },
            ..Directives::default()
        };
        assert_eq!(
            (kills.merge_directives(&message), kills.buckets().count()),
            (Ok(false), 3)
        );
        message.lead.leader = Some(Epoch(1).into());
        message.kills.buckets = some(&[(4, 1)]);
        assert_eq!(kills.merge_directives(&message), Ok(true));
        let held: Vec<_> = kills
            .buckets()
            .map(|(bucket, of)| (bucket.clone(), of))
            .collect();
        assert_eq!(
            held,
            some(&[(3, 3), (4, 1)]).into_iter().collect::<Vec<_>>()
        );
        assert_eq!(kills.fleet(), KillGeneration(5));
    }

    #[test]
    fn drills_only_advance_and_change_no_generation() {
        let mut kills = Kills::default();
        assert!(
            kills.merge_drill(Drill(3))
                && !kills.merge_drill(Drill(3))
                && !kills.merge_drill(Drill(2))
        );
        assert!(
            !kills.merge_drill(Drill(u64::MAX)),
            "no later drill would be possible"
        );
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
