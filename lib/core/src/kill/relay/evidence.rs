//! Evidence of kills that an aggregator has lost with its state: the generations that its children claim.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::kill::{Claims, KillGeneration, KillNews, Kills, SENT_MAX, Scope};
use crate::quantity::MonoTime;

/// The time after a start before claims count. A connected controller sends directives within it.
const COUNTS_AFTER: Duration = Duration::from_secs(1);

/// The generations that children have raised, and the state that ends it.
///
/// ```text
/// without state ------------- order given here or relayed ----> no more is taken
/// without state, no more ---- directives of a controller -----> over; what was raised is taken back
/// ```
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// The generation held before, by scope.
    before: BTreeMap<Scope, KillGeneration>,
    /// True since the process has its own state: directives of a controller, or an order.
    has_state: bool,
    /// The first tick.
    since: Option<MonoTime>,
}

impl Evidence {
    /// Raises the generations that children claim, if the process has no state. Returns true if any changed.
    pub(super) fn on_tick(&mut self, now: MonoTime, claims: &Claims, kills: &mut Kills) -> bool {
        let since = *self.since.get_or_insert(now);
        if self.has_state || now.since(since) < COUNTS_AFTER {
            return false;
        }
        let mut changed = false;
        for (scope, claim) in claims.iter() {
            let held = kills.generation(scope);
            if claim.generation > held && kills.has_room_for_evidence(scope) {
                self.before.entry(scope.clone()).or_insert(held);
                changed |= kills.raise(scope, claim.generation);
            }
        }
        changed
    }

    /// Keeps the generation of a scope as the base of an order, and takes no more evidence.
    pub(super) fn on_order(&mut self, scope: &Scope) {
        self.has_state = true;
        self.before.remove(scope);
    }

    /// Keeps a generation of a parent that is above what children have raised. Another one may be
    /// theirs, returned by a parent without state.
    pub(super) fn on_parent(&mut self, news: &KillNews, kills: &Kills) {
        for (scope, before) in &mut self.before {
            let sent = news.generation(scope);
            if let Some(sent) =
                sent.filter(|sent| sent.0 <= SENT_MAX && *sent > kills.generation(scope))
            {
                before.merge(sent);
            }
        }
    }

    /// Takes back all generations that were raised: the controller's word holds. Returns true if there were any.
    pub(super) fn on_controller(&mut self, kills: &mut Kills) -> bool {
        self.has_state = true;
        let before = std::mem::take(&mut self.before);
        before
            .iter()
            .for_each(|(scope, generation)| kills.restore(scope, *generation));
        !before.is_empty()
    }

    /// The generation of a scope without evidence.
    pub(super) fn without(&self, kills: &Kills, scope: &Scope) -> KillGeneration {
        self.before
            .get(scope)
            .copied()
            .unwrap_or_else(|| kills.generation(scope))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kill::KillClaim;
    use crate::names::{Bucket, Name, Zone};
    use crate::report::{Identity, InstanceId, Role};

    #[derive(Clone, Copy, Debug)]
    enum Act {
        /// A child claims this generation of the fleet; a second passes, or less.
        Child(u64),
        Soon(u64),
        /// An order for the fleet, or for a bucket, brings this generation.
        Order(u64),
        OrderOfBucket,
        /// A parent that no controller has spoken to sends this generation of the fleet.
        Parent(u64),
        /// A controller sends this generation of the fleet.
        Controller(u64),
    }

    #[test]
    fn evidence_ends_with_order_or_controller() {
        use Act::*;
        let table: &[(&[Act], u64)] = &[
            (&[Child(1)], 1),
            (&[Child(1), Child(3), Child(2)], 3),
            (&[Child(1), Soon(3)], 3),
            (&[Soon(1)], 0),
            (&[Soon(1), Controller(0), Child(1)], 0),
            (&[Child(1), Controller(0)], 0),
            (&[Child(3), Controller(1)], 1),
            (&[Child(1), Controller(2)], 2),
            (&[Child(1), Controller(0), Child(1)], 0),
            // A generation that returns from a parent is taken back with it, and the parent's own
            // is not.
            (&[Child(3), Parent(3), Controller(0)], 0),
            (&[Child(3), Parent(5), Controller(0)], 5),
            (&[Order(1), Child(3)], 1),
            (&[Child(3), Order(5), Controller(0)], 5),
            (&[Child(3), OrderOfBucket], 3),
            (&[Child(3), OrderOfBucket, Child(5)], 3),
            (&[Child(3), OrderOfBucket, Controller(0)], 0),
        ];
        let bucket = Scope::Bucket(Bucket::new("api").unwrap());
        let child = Identity {
            instance: InstanceId(1),
            name: Name::new("host:1").unwrap(),
            service: Name::new("shop").unwrap(),
            zone: Zone::new("a").unwrap(),
            role: Role::Client,
        };
        for (acts, generation) in table {
            let (mut evidence, mut kills, mut claims) =
                (Evidence::default(), Kills::default(), Claims::default());
            let mut now = MonoTime::ZERO;
            evidence.on_tick(now, &claims, &mut kills);
            for act in *acts {
                match *act {
                    Child(generation) | Soon(generation) => {
                        let claim = KillClaim::of(&child, KillGeneration(generation));
                        claims.note(now, KillGeneration(0), &Scope::Fleet, claim, &child);
                        now = now
                            + Duration::from_millis(if matches!(act, Child(_)) {
                                1_000
                            } else {
                                999
                            });
                        evidence.on_tick(now, &claims, &mut kills);
                    }
                    Order(generation) => {
                        evidence.on_order(&Scope::Fleet);
                        kills.raise(&Scope::Fleet, KillGeneration(generation));
                    }
                    OrderOfBucket => evidence.on_order(&bucket),
                    Parent(generation) => {
                        let kill = KillGeneration(generation);
                        evidence.on_parent(&kill.into(), &kills);
                        kills.raise(&Scope::Fleet, kill);
                    }
                    Controller(generation) => {
                        evidence.on_controller(&mut kills);
                        kills.raise(&Scope::Fleet, KillGeneration(generation));
                    }
                }
            }
            assert_eq!(kills.fleet(), KillGeneration(*generation), "{acts:?}");
        }
    }
}
