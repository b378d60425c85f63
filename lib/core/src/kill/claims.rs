//! The book of claims: kill generations that children hold without an order. They move nothing here, except as
//! evidence at a process without state.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{KillGeneration, Scope, claimable};
use crate::names::{Name, Zone};
use crate::quantity::MonoTime;
use crate::report::{Identity, InstanceId, Role};

/// Maximum number of scopes with a claim. For a further bucket, the child with the most claims loses its oldest, or
/// the claim is only counted.
pub const CLAIMS_MAX: usize = 512;
/// The number of claims from which on a client adds no further scope, so that it does not crowd out the others.
const OF_CLIENT_MAX: usize = 16;
/// Time until a claim that no child has repeated is dropped. A child repeats its generations in
/// every 512 reports: within 9 minutes at the maximum report interval.
const KEPT: Duration = Duration::from_secs(20 * 60);
/// The interval between logs of new claims, and their maximum number in one log.
const LOG_EVERY: Duration = Duration::from_secs(60);
const LOGGED_MAX: usize = 8;
/// Time for an order to explain a claim before it is logged. A client of two aggregators carries an
/// order from one to the other, and an aggregator reconnects within 12 s.
const EXPLAINED_WITHIN: Duration = Duration::from_secs(15);

/// A kill generation that a process holds without an order for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KillClaim {
    /// The generation.
    pub generation: KillGeneration,
    /// The zone of the process.
    pub zone: Zone,
    /// The service of the process.
    pub service: Name,
    /// The stable name of the process.
    pub name: Name,
}

/// The highest claim for each scope above the generation held here, and the process that made it. A
/// claim stays until the generation held reaches it, or children stop repeating it.
#[derive(Debug, Default)]
pub struct Claims {
    by_scope: BTreeMap<Scope, Held>,
    version: u64,
    /// Count of claims above the one kept for their scope, whether there was room for them or not.
    pub ignored: u64,
    /// The version and the time of the last log.
    logged: (u64, Option<MonoTime>),
    /// The time when the first change that is not logged was found.
    unlogged_since: Option<MonoTime>,
}

/// A claim, and how it arrived here.
#[derive(Clone, Debug)]
struct Held {
    claim: KillClaim,
    child: InstanceId,
    /// The time when a child last made or repeated it.
    at: MonoTime,
    /// The version of its last change.
    changed: u64,
}

impl KillClaim {
    /// Creates the claim of a child.
    pub fn of(child: &Identity, generation: KillGeneration) -> Self {
        let Identity {
            zone,
            service,
            name,
            ..
        } = child.clone();
        Self {
            generation,
            zone,
            service,
            name,
        }
    }
}

impl Claims {
    /// Notes a claim that a `child` makes or passes on, if it is above the generation `held` and above the claims
    /// before. An implausible generation counts as the highest plausible one.
    pub fn note(
        &mut self,
        now: MonoTime,
        held: KillGeneration,
        scope: &Scope,
        claim: KillClaim,
        child: &Identity,
    ) {
        let generation = KillGeneration(claim.generation.0.min(claimable(held.0)));
        if generation <= held {
            return;
        }
        let before = self.by_scope.get_mut(scope);
        let is_known = matches!(scope, Scope::Fleet) || before.is_some();
        if let Some(before) = before.filter(|before| before.claim.generation >= generation) {
            if before.claim.generation == generation {
                before.at = now;
            }
            return;
        }
        self.ignored += 1;
        if is_known || self.makes_room(child) {
            self.version += 1;
            let claim = KillClaim {
                generation,
                ..claim
            };
            let held = Held {
                claim,
                child: child.instance,
                at: now,
                changed: self.version,
            };
            self.by_scope.insert(scope.clone(), held);
        }
    }

    /// Makes room for another claim of a child: where all places are taken, the child with the most claims loses
    /// its oldest. Returns false if no child has at least two more than this one, or this is a client with as many as it
    /// may have.
    fn makes_room(&mut self, child: &Identity) -> bool {
        let mut of_each = BTreeMap::<InstanceId, usize>::new();
        self.by_scope
            .values()
            .for_each(|held| *of_each.entry(held.child).or_default() += 1);
        let own = of_each.get(&child.instance).copied().unwrap_or_default();
        if child.role == Role::Client && own >= OF_CLIENT_MAX {
            return false;
        }
        if self.by_scope.len() < CLAIMS_MAX {
            return true;
        }
        let Some((most, _)) = of_each
            .into_iter()
            .filter(|(_, count)| *count > own + 1)
            .max_by_key(|of| of.1)
        else {
            return false;
        };
        let its = self.by_scope.iter().filter(|(_, held)| held.child == most);
        if let Some(oldest) = its
            .min_by_key(|(_, held)| (held.at, held.changed))
            .map(|(scope, _)| scope.clone())
        {
            self.by_scope.remove(&oldest);
        }
        true
    }

    /// Drops the claims that no child has repeated for long: the processes that made them have
    /// ended.
    pub fn prune(&mut self, now: MonoTime) {
        self.by_scope.retain(|_, held| now.since(held.at) < KEPT);
    }

    /// Drops the claims that the generations held have reached.
    pub fn settle(&mut self, held: impl Fn(&Scope) -> KillGeneration) {
        self.by_scope
            .retain(|scope, kept| kept.claim.generation > held(scope));
    }

    /// The highest generation claimed for a scope; 0 without a claim.
    pub fn highest(&self, scope: &Scope) -> KillGeneration {
        self.by_scope
            .get(scope)
            .map_or(KillGeneration(0), |held| held.claim.generation)
    }

    /// Every claim, the fleet's first.
    pub fn iter(&self) -> impl Iterator<Item = (&Scope, &KillClaim)> {
        self.by_scope
            .iter()
            .map(|(scope, held)| (scope, &held.claim))
    }

    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn since(&self, seen: u64) -> BTreeMap<Scope, KillClaim> {
        let later = self.by_scope.iter().filter(|(_, held)| held.changed > seen);
        later
            .map(|(scope, held)| (scope.clone(), held.claim.clone()))
            .collect()
    }

    /// Takes the claims to log: a few of the new ones once a minute, unless an order has explained them soon. The others
    /// are not logged.
    pub fn take_unlogged(&mut self, now: MonoTime) -> Vec<(Scope, KillClaim)> {
        let (seen, at) = self.logged;
        let unlogged = self.since(seen);
        if unlogged.is_empty() {
            self.unlogged_since = None;
            return Vec::new();
        }
        let since = *self.unlogged_since.get_or_insert(now);
        if now.since(since) < EXPLAINED_WITHIN || at.is_some_and(|at| now.since(at) < LOG_EVERY) {
            return Vec::new();
        }
        self.unlogged_since = None;
        self.logged = (self.version, Some(now));
        unlogged.into_iter().take(LOGGED_MAX).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Bucket;

    fn child(number: u128, role: Role) -> Identity {
        Identity {
            instance: InstanceId(number),
            name: Name::new(&format!("host:{number}")).unwrap(),
            service: Name::new("shop").unwrap(),
            zone: Zone::new("a").unwrap(),
            role,
        }
    }

    fn bucket(number: usize) -> Scope {
        Scope::Bucket(Bucket::new(&format!("b{number}")).unwrap())
    }

    fn at(s: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_secs(s))
    }

    fn note(claims: &mut Claims, held: u64, number: u128, generation: u64) {
        let child = child(number, Role::Client);
        let claim = KillClaim::of(&child, KillGeneration(generation));
        claims.note(at(0), KillGeneration(held), &Scope::Fleet, claim, &child);
    }

    /// Notes that a child claims a kill of this bucket, of which none is held.
    fn note_bucket(claims: &mut Claims, s: u64, child: &Identity, number: usize, generation: u64) {
        let claim = KillClaim::of(child, KillGeneration(generation));
        claims.note(at(s), KillGeneration(0), &bucket(number), claim, child);
    }

    #[test]
    fn highest_claim_is_kept_until_reached() {
        let mut claims = Claims::default();
        for (number, generation) in [(1, 2), (2, 7), (3, 7), (4, 5)] {
            note(&mut claims, 2, number, generation);
        }
        let names = |claims: &Claims| -> Vec<(u64, String)> {
            claims
                .iter()
                .map(|(_, claim)| (claim.generation.0, claim.name.to_string()))
                .collect()
        };
        assert_eq!(
            (names(&claims), claims.ignored),
            (vec![(7, "host:2".to_owned())], 1)
        );
        claims.settle(|_| KillGeneration(6));
        assert_eq!(claims.highest(&Scope::Fleet), KillGeneration(7));
        claims.settle(|_| KillGeneration(8));
        assert_eq!(
            (claims.iter().count(), claims.highest(&Scope::Fleet)),
            (0, KillGeneration(0))
        );
    }

    #[test]
    fn numbers_cannot_be_exhausted() {
        let (mut claims, mut held) = (Claims::default(), KillGeneration(0));
        for _ in 0..100_000 {
            note(&mut claims, held.0, 1, u64::MAX);
            held = claims.highest(&Scope::Fleet).switched(true).switched(false);
            claims.settle(|_| held);
        }
        assert!(held.0 < super::super::SENT_MAX && held.accepts(KillGeneration(held.0 + 2)));
    }

    #[test]
    fn claims_are_bounded_by_client() {
        let mut claims = Claims::default();
        for (number, role, most) in [
            (1, Role::Client, OF_CLIENT_MAX),
            (2, Role::Aggregator, CLAIMS_MAX),
        ] {
            let child = child(number, role);
            (0..2 * CLAIMS_MAX).for_each(|bucket| note_bucket(&mut claims, 0, &child, bucket, 1));
            assert_eq!(claims.by_scope.len(), most);
        }
        note(&mut claims, 0, 3, 1);
        assert_eq!(
            claims.highest(&Scope::Fleet),
            KillGeneration(1),
            "the fleet always has room"
        );
    }

    #[test]
    fn claim_that_no_child_repeats_expires() {
        let mut claims = Claims::default();
        let clients = [1, 2, 3].map(|number| child(number, Role::Client));
        note_bucket(&mut claims, 0, &clients[0], 1, 7);
        note_bucket(&mut claims, 0, &clients[1], 2, 7);
        // The first process has ended; a child repeats the claim of the second, and others claim
        // less.
        for s in (100..=3_000).step_by(100) {
            note_bucket(&mut claims, s, &clients[2], 2, 7);
            claims.prune(at(s));
            note_bucket(&mut claims, s, &clients[2], 1, 5);
            claims.prune(at(s));
        }
        let held = |claims: &Claims, number| claims.highest(&bucket(number)).0;
        assert_eq!(
            (held(&claims, 1), held(&claims, 2)),
            (5, 7),
            "the claim of a living process takes the place"
        );
        claims.prune(at(3_000 + 3_600));
        assert_eq!(claims.iter().count(), 0);
    }

    #[test]
    fn one_child_leaves_room_for_other_claims() {
        let mut claims = Claims::default();
        let mut note = |number, role, scope| {
            note_bucket(&mut claims, 0, &child(number, role), scope, 1);
        };
        (0..2 * CLAIMS_MAX).for_each(|scope| note(1, Role::Aggregator, scope));
        (0..100).for_each(|scope| note(2, Role::Aggregator, 10_000 + scope));
        note(3, Role::Client, 20_000);
        let of = |name: &str| {
            claims
                .iter()
                .filter(|(_, claim)| claim.name.as_str() == name)
                .count()
        };
        assert_eq!(
            (of("host:2"), of("host:3"), of("host:1")),
            (100, 1, CLAIMS_MAX - 101)
        );
    }

    #[test]
    fn new_claims_are_logged_once_a_minute() {
        let mut claims = Claims::default();
        let logged: Vec<usize> = [0, 15, 16, 45, 76, 77, 200]
            .into_iter()
            .zip([1, 1, 2, 3, 3, 4, 4])
            .map(|(s, generation)| {
                note(&mut claims, 0, 1, generation);
                claims.take_unlogged(at(s)).len()
            })
            .collect();
        assert_eq!(logged, [0, 1, 0, 0, 1, 0, 1]);
    }

    #[test]
    fn soon_explained_claim_is_not_logged() {
        let mut claims = Claims::default();
        let mut logged = |s, generation, held| {
            note(&mut claims, held, 1, generation);
            claims.settle(|_| KillGeneration(held));
            claims.take_unlogged(at(s)).len()
        };
        // The client of two aggregators carries an order from one to the other, and the controller follows.
        assert_eq!(
            [logged(0, 3, 2), logged(3, 3, 3), logged(20, 3, 3)],
            [0, 0, 0]
        );
        // An unexplained claim is logged, although another log was just before it.
        assert_eq!(
            [logged(21, 5, 4), logged(35, 5, 4), logged(36, 5, 4)],
            [0, 0, 1]
        );
    }
}
