//! The buckets that children ask for. Each is a lease, and takes a place of the child that asked first.

use std::collections::{BTreeMap, BTreeSet};

use super::LEASE;
use crate::names::{Bucket, Name, Zone};
use crate::quantity::MonoTime;
use crate::report::Identity;

/// A child whose places are counted. It stays the same over reconnections and restarts of its process. The
/// service belongs to it because clients on one host may share the name of the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asker {
    zone: Zone,
    service: Name,
    name: Name,
}

/// The buckets that children ask for, up to a bound.
#[derive(Debug, Default)]
pub struct AskedBuckets {
    /// Places at most.
    max: usize,
    leases: BTreeMap<Bucket, Lease>,
    /// Places that are taken, by asker.
    taken: BTreeMap<Asker, usize>,
    /// All of them together.
    all_taken: usize,
}

/// The lease of one bucket.
#[derive(Debug)]
pub struct Lease {
    /// The time at which a child last asked for it, or at which the lease began without one.
    asked: MonoTime,
    /// The child whose place it takes; `None` if it is kept although no child asked for it.
    owner: Option<Owner>,
}

#[derive(Debug)]
struct Owner {
    asker: Asker,
    /// The time at which it last asked.
    asked: MonoTime,
}

// === impl Asker ===

impl From<&Identity> for Asker {
    fn from(identity: &Identity) -> Self {
        let Identity { zone, service, name, .. } = identity;
        Self { zone: zone.clone(), service: service.clone(), name: name.clone() }
    }
}

// === impl Lease ===

impl Lease {
    /// A lease that takes no place.
    pub const fn kept(now: MonoTime) -> Self {
        Self { asked: now, owner: None }
    }

    fn has_lapsed(&self, now: MonoTime) -> bool {
        now.since(self.asked) >= LEASE
    }
}

// === impl AskedBuckets ===

impl AskedBuckets {
    /// No buckets, and room for `max`.
    pub fn new(max: usize) -> Self {
        Self { max, ..Self::default() }
    }

    /// Sets the bound. Buckets beyond it stay until they lapse.
    pub const fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    /// Half of the places, so that one child never takes all.
    pub const fn half(&self) -> usize {
        self.max.div_ceil(2)
    }

    /// Begins another lease of a bucket that a child asks for. The place is that of the first child until a
    /// lease after it last asked; then the next child that asks needs one. Returns false without a place: of
    /// the `places_max` of the child, or of all.
    pub fn ask(&mut self, now: MonoTime, asker: &Asker, places_max: usize, bucket: &Bucket) -> bool {
        let taken = self.taken.get(asker).copied().unwrap_or_default();
        let has_place = taken < places_max;
        let Some(lease) = self.leases.get_mut(bucket) else {
            if has_place && self.all_taken < self.max {
                let owner = Some(Owner { asker: asker.clone(), asked: now });
                self.put(bucket.clone(), Lease { asked: now, owner });
                return true;
            }
            return false;
        };
        match &mut lease.owner {
            Some(owner) if owner.asker == *asker => owner.asked = now,
            Some(owner) if now.since(owner.asked) < LEASE => {}
            owner => {
                if !has_place || owner.is_none() && self.all_taken >= self.max {
                    return false;
                }
                if let Some(before) = owner.replace(Owner { asker: asker.clone(), asked: now }) {
                    self.all_taken -= 1;
                    give_back(&mut self.taken, &before.asker);
                }
                *self.taken.entry(asker.clone()).or_default() += 1;
                self.all_taken += 1;
            }
        }
        lease.asked = now;
        true
    }

    /// Begins a lease of a bucket although no child asks for it, unless it has one.
    pub fn keep(&mut self, now: MonoTime, bucket: &Bucket) {
        if !self.contains(bucket) {
            self.leases.insert(bucket.clone(), Lease::kept(now));
        }
    }

    /// Takes a bucket out, which frees its place.
    pub fn take(&mut self, bucket: &Bucket) -> Option<Lease> {
        let lease = self.leases.remove(bucket)?;
        if let Some(owner) = &lease.owner {
            self.all_taken -= 1;
            give_back(&mut self.taken, &owner.asker);
        }
        Some(lease)
    }

    /// Puts a bucket that was [taken out](Self::take) elsewhere, with its place.
    pub fn put(&mut self, bucket: Bucket, lease: Lease) {
        self.take(&bucket);
        if let Some(owner) = &lease.owner {
            *self.taken.entry(owner.asker.clone()).or_default() += 1;
            self.all_taken += 1;
        }
        self.leases.insert(bucket, lease);
    }

    /// Removes buckets.
    pub fn remove(&mut self, gone: &BTreeSet<Bucket>) {
        for bucket in gone {
            self.take(bucket);
        }
    }

    /// Returns true if the bucket is held.
    pub fn contains(&self, bucket: &Bucket) -> bool {
        self.leases.contains_key(bucket)
    }

    /// All buckets, in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = &Bucket> {
        self.leases.keys()
    }

    /// Returns true if the bucket has no lease, or one that has ended.
    pub fn has_lapsed(&self, now: MonoTime, bucket: &Bucket) -> bool {
        self.leases.get(bucket).is_none_or(|lease| lease.has_lapsed(now))
    }

    /// The buckets that no child has asked for within a lease. They keep their places until they are removed.
    pub fn lapsed(&self, now: MonoTime) -> impl Iterator<Item = &Bucket> {
        self.leases.iter().filter(move |(_, lease)| lease.has_lapsed(now)).map(|(bucket, _)| bucket)
    }
}

fn give_back(taken: &mut BTreeMap<Asker, usize>, asker: &Asker) {
    if let Some(places) = taken.get_mut(asker) {
        *places -= 1;
        if *places == 0 {
            taken.remove(asker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_secs(seconds))
    }

    fn asker(name: &str) -> Asker {
        let [zone, service] = ["z", "shop"];
        Asker {
            zone: Zone::new(zone).unwrap(),
            service: Name::new(service).unwrap(),
            name: Name::new(name).unwrap(),
        }
    }

    fn bucket(name: &str) -> Bucket {
        Bucket::new(name).unwrap()
    }

    #[test]
    fn places_are_bounded_by_asker_and_for_all() {
        let (a, b) = (asker("a"), asker("b"));
        let mut asked = AskedBuckets::new(3);
        assert_eq!(
            ["1", "2", "3", "1"].map(|name| asked.ask(at(0), &a, 2, &bucket(name))),
            [true, true, false, true]
        );
        assert_eq!(["1", "3", "4"].map(|name| asked.ask(at(0), &b, 2, &bucket(name))), [true, true, false]);
        assert!(asked.iter().eq([&bucket("1"), &bucket("2"), &bucket("3")]));
        asked.keep(at(0), &bucket("kept"));
        assert!(!asked.ask(at(1), &b, 2, &bucket("kept")), "a kept one needs a place when it is asked for");
        asked.remove(&BTreeSet::from([bucket("2")]));
        assert!(asked.ask(at(1), &a, 2, &bucket("4")) && asked.all_taken == 3);
    }

    #[test]
    fn place_is_that_of_the_first_asker_until_a_lease_after_it_last_asked() {
        let (a, b) = (asker("a"), asker("b"));
        let mut asked = AskedBuckets::new(10);
        assert!(asked.ask(at(0), &a, 1, &bucket("1")));
        assert!(asked.ask(at(119), &b, 0, &bucket("1")), "the place of another serves it");
        assert!(!asked.ask(at(119), &a, 1, &bucket("2")));
        assert!(!asked.ask(at(120), &b, 0, &bucket("1")), "it needs one of its own from here on");
        assert!(asked.ask(at(120), &b, 1, &bucket("1")));
        assert!(asked.ask(at(120), &a, 1, &bucket("2")), "the place of the first is free");
        assert_eq!((asked.taken.len(), asked.all_taken), (2, 2));
    }

    #[test]
    fn lapsed_bucket_keeps_its_place_until_it_is_removed() {
        let a = asker("a");
        let mut asked = AskedBuckets::new(10);
        assert!(asked.ask(at(0), &a, 1, &bucket("1")));
        assert!(asked.lapsed(at(119)).next().is_none() && asked.lapsed(at(120)).eq([&bucket("1")]));
        assert!(!asked.ask(at(500), &a, 1, &bucket("2")));
        let lease = asked.take(&bucket("1")).unwrap();
        let mut other = AskedBuckets::new(10);
        other.put(bucket("1"), lease);
        assert!(!other.ask(at(500), &a, 1, &bucket("2")) && asked.ask(at(500), &a, 1, &bucket("2")));
        assert!(other.has_lapsed(at(500), &bucket("1")) && other.has_lapsed(at(0), &bucket("none")));
        assert!(asked.taken.values().eq([&1]) && other.taken.values().eq([&1]));
    }
}
