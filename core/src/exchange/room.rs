//! Room for the buckets that children ask for: for how long they are kept, and a record of those that found none.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Asker;
use crate::names::Bucket;
use crate::quantity::MonoTime;

/// A child asks again at this interval for every bucket that it still needs, also for one that found no room.
pub const RENEWAL: Duration = Duration::from_secs(30);
/// A bucket that no child has asked for within this time is no longer needed for children.
pub const LEASE: Duration = Duration::from_secs(120);
/// Buckets without room that are remembered by name.
const NAMES_MAX: usize = 64;

/// The buckets that found no room: their requests are admitted, whatever the policy says. The latest ones are
/// remembered by name. One child that asks for many displaces names of its own, not those of other children.
#[derive(Debug, Default)]
pub struct NoRoom {
    refused: BTreeMap<Bucket, Refused>,
    unlogged: Vec<Bucket>,
    /// The number of times that a bucket was refused.
    pub count: u64,
    /// The latest refusal of a name that was not remembered yet, and the number of those at that time.
    displacing: (MonoTime, usize),
}

/// A bucket that found no room.
#[derive(Debug)]
struct Refused {
    /// The child that asked for it first.
    asker: Asker,
    /// The time at which a child last did.
    at: MonoTime,
}

// === impl NoRoom ===

impl NoRoom {
    /// Notes a bucket for which a child found no room.
    pub fn on_refused(&mut self, now: MonoTime, asker: &Asker, bucket: &Bucket) {
        self.count += 1;
        if let Some(refused) = self.refused.get_mut(bucket) {
            refused.at = now;
            return;
        }
        if self.refused.len() >= NAMES_MAX {
            let Some(displaced) = self.displaced_by(now, asker) else { return };
            let is_own = self.refused.remove(&displaced).is_some_and(|refused| refused.asker == *asker);
            match self.unlogged.iter_mut().find(|name| **name == displaced) {
                Some(name) => *name = bucket.clone(),
                // One child does not fill the log by asking for ever more.
                None if is_own => {}
                None => self.unlogged.push(bucket.clone()),
            }
        } else {
            self.unlogged.push(bucket.clone());
        }
        self.refused.insert(bucket.clone(), Refused { asker: asker.clone(), at: now });
    }

    /// The name that makes room for another one of a child: the oldest of the child with the most names, or of
    /// itself. `None` after as many at one time as there are names, so that a report of many costs little.
    fn displaced_by(&mut self, now: MonoTime, asker: &Asker) -> Option<Bucket> {
        let (at, times) = self.displacing;
        self.displacing = (now, if at == now { times + 1 } else { 1 });
        if self.displacing.1 > NAMES_MAX {
            return None;
        }
        let mut names = BTreeMap::<&Asker, usize>::new();
        self.refused.values().for_each(|refused| *names.entry(&refused.asker).or_default() += 1);
        let own = names.get(asker).copied().unwrap_or_default();
        let (most, of_most) = names.into_iter().max_by_key(|(_, names)| *names)?;
        let of_other = of_most > own + 1;
        let from = if of_other { most } else { asker };
        let may_leave = |refused: &Refused| refused.asker == *from && (of_other || refused.at < now);
        let of_child = self.refused.iter().filter(|(_, refused)| may_leave(refused));
        of_child.min_by_key(|(_, refused)| refused.at).map(|(bucket, _)| bucket.clone())
    }

    /// Forgets a bucket, which has room now.
    pub fn on_room(&mut self, bucket: &Bucket) {
        self.refused.remove(bucket);
    }

    /// Forgets buckets that no child asks for any more.
    pub fn prune(&mut self, now: MonoTime) {
        self.refused.retain(|_, refused| now.since(refused.at) < LEASE);
        let refused = &self.refused;
        self.unlogged.retain(|bucket| refused.contains_key(bucket));
    }

    /// The latest buckets without room, in the order of names.
    pub fn names(&self) -> impl Iterator<Item = &Bucket> {
        self.refused.keys()
    }

    /// Takes the buckets that are new here since the last call.
    pub fn take_unlogged(&mut self) -> Vec<Bucket> {
        std::mem::take(&mut self.unlogged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{Name, Zone};
    use crate::report::{Identity, InstanceId, Role};

    fn at(seconds: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_secs(seconds))
    }

    fn asker(named: &str) -> Asker {
        let name = |name| Name::new(name).unwrap();
        Asker::from(&Identity {
            instance: InstanceId(1),
            name: name(named),
            service: name("shop"),
            zone: Zone::new("a").unwrap(),
            role: Role::Client,
        })
    }

    fn junk(number: usize) -> Bucket {
        Bucket::new(&format!("junk{number}")).unwrap()
    }

    #[test]
    fn bucket_without_room_is_named_until_it_has_room_or_is_asked_for_no_more() {
        let [a, b] = ["a", "b"].map(|name| Bucket::new(name).unwrap());
        let mut no_room = NoRoom::default();
        [&a, &b, &a].into_iter().for_each(|bucket| no_room.on_refused(at(0), &asker("a"), bucket));
        assert_eq!((no_room.count, no_room.take_unlogged()), (3, vec![a.clone(), b.clone()]));
        no_room.on_room(&a);
        assert!(no_room.names().eq([&b]));
        no_room.on_refused(at(30), &asker("a"), &b);
        no_room.prune(at(149));
        assert!(no_room.names().eq([&b]));
        no_room.prune(at(150));
        assert_eq!((no_room.names().count(), no_room.take_unlogged()), (0, vec![]));
    }

    #[test]
    fn names_are_bounded_and_all_are_counted() {
        let mut no_room = NoRoom::default();
        for number in 0..1_000 {
            no_room.on_refused(at(0), &asker("a"), &junk(number));
        }
        assert_eq!((no_room.count, no_room.names().count()), (1_000, NAMES_MAX));
    }

    #[test]
    fn latest_names_are_shown_and_those_of_a_child_with_few_stay() {
        let mut no_room = NoRoom::default();
        let of = |no_room: &NoRoom, bucket: &Bucket| no_room.names().any(|name| name == bucket);
        (0..100).for_each(|number| no_room.on_refused(at(0), &asker("junk"), &junk(number)));
        assert_eq!(no_room.take_unlogged().len(), NAMES_MAX);
        let orders = Bucket::new("orders").unwrap();
        no_room.on_refused(at(1), &asker("honest"), &orders);
        assert_eq!(no_room.take_unlogged(), std::slice::from_ref(&orders));
        for second in 2..30 {
            let from = 1_000 * second as usize;
            (from..from + 1_000)
                .for_each(|number| no_room.on_refused(at(second), &asker("junk"), &junk(number)));
            assert!(of(&no_room, &orders) && of(&no_room, &junk(from)) && !of(&no_room, &junk(5)));
        }
        assert_eq!((no_room.names().count(), no_room.take_unlogged()), (NAMES_MAX, vec![]));
    }
}
