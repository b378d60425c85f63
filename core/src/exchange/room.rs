//! Room for the buckets that children ask for: for how long they are kept, and a record of those that found none.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::names::Bucket;
use crate::quantity::MonoTime;

/// A child asks again at this interval for every bucket that it still needs, also for one that found no room.
pub const RENEWAL: Duration = Duration::from_secs(30);
/// A bucket that no child has asked for within this time is no longer needed for children.
pub const LEASE: Duration = Duration::from_secs(120);
/// Buckets without room that are remembered by name.
const NAMES_MAX: usize = 64;

/// The buckets that found no room: their requests are admitted, whatever the policy says.
#[derive(Debug, Default)]
pub struct NoRoom {
    /// The time at which each was last asked for.
    refused: BTreeMap<Bucket, MonoTime>,
    unlogged: Vec<Bucket>,
    /// The number of times that a bucket was refused.
    pub count: u64,
}

// === impl NoRoom ===

impl NoRoom {
    /// Notes a bucket that found no room. Names beyond the first ones are only counted.
    pub fn on_refused(&mut self, now: MonoTime, bucket: &Bucket) {
        self.count += 1;
        if let Some(at) = self.refused.get_mut(bucket) {
            *at = now;
        } else if self.refused.len() < NAMES_MAX {
            self.refused.insert(bucket.clone(), now);
            self.unlogged.push(bucket.clone());
        }
    }

    /// Forgets a bucket, which has room now.
    pub fn on_room(&mut self, bucket: &Bucket) {
        self.refused.remove(bucket);
    }

    /// Forgets buckets that no child asks for any more.
    pub fn prune(&mut self, now: MonoTime) {
        self.refused.retain(|_, at| now.since(*at) < LEASE);
        let refused = &self.refused;
        self.unlogged.retain(|bucket| refused.contains_key(bucket));
    }

    /// The first buckets without room, in the order of names.
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

    fn at(seconds: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_secs(seconds))
    }

    #[test]
    fn bucket_without_room_is_named_until_it_has_room_or_is_asked_for_no_more() {
        let [a, b] = ["a", "b"].map(|name| Bucket::new(name).unwrap());
        let mut no_room = NoRoom::default();
        [&a, &b, &a].into_iter().for_each(|bucket| no_room.on_refused(at(0), bucket));
        assert_eq!((no_room.count, no_room.take_unlogged()), (3, vec![a.clone(), b.clone()]));
        no_room.on_room(&a);
        assert!(no_room.names().eq([&b]));
        no_room.on_refused(at(30), &b);
        no_room.prune(at(149));
        assert!(no_room.names().eq([&b]));
        no_room.prune(at(150));
        assert_eq!((no_room.names().count(), no_room.take_unlogged()), (0, vec![]));
    }

    #[test]
    fn names_are_bounded_and_all_are_counted() {
        let mut no_room = NoRoom::default();
        for number in 0..1_000 {
            no_room.on_refused(at(0), &Bucket::new(&format!("junk{number}")).unwrap());
        }
        assert_eq!((no_room.count, no_room.names().count()), (1_000, NAMES_MAX));
    }
}
