//! Every bucket that the controller knows. Those that the policy lists by their exact name always have room;
//! those that children ask for have room of their own, and leave when nothing needs them.

use std::collections::{BTreeSet, HashMap};

use plimsoll_core::exchange::NoRoom;
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;
use plimsoll_policy::Policy;

use super::{BucketState, Scratch};

/// Asked buckets at most that a pattern of the policy covers, and as many again that nothing in it covers.
const ASKED_MAX: usize = 5_000;
/// Keys at most that follow from asked buckets, since each has an entry for every listed tenant.
const ASKED_KEYS_MAX: usize = 400_000;

/// How the policy lists a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Listing {
    /// By its exact name.
    Exact,
    /// By a pattern.
    Pattern,
    /// Not at all.
    #[default]
    None,
}

/// The known buckets.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    states: Vec<BucketState>,
    by_name: HashMap<Bucket, usize>,
    /// Asked buckets at most, of each listing.
    asked_max: usize,
    /// The number of buckets, by listing.
    counts: [usize; 3],
    /// Buckets that found no room.
    pub(crate) no_room: NoRoom,
    scratch: Scratch,
}

// === impl Listing ===

impl Listing {
    /// The listing of a bucket in a policy.
    pub(crate) fn of(policy: &Policy, bucket: &Bucket) -> Self {
        if policy.is_exact(bucket) {
            Self::Exact
        } else if policy.bucket(bucket).is_some() {
            Self::Pattern
        } else {
            Self::None
        }
    }
}

// === impl Buckets ===

impl Buckets {
    /// Bounds asked buckets by the number of tenants that a policy lists.
    pub(crate) fn on_policy(&mut self, policy: &Policy) {
        self.asked_max = ASKED_MAX.min(ASKED_KEYS_MAX / policy.tenants().count().max(1));
        self.count();
    }

    fn count(&mut self) {
        self.counts = [0; 3];
        for state in &self.states {
            self.counts[state.listing as usize] += 1;
        }
    }

    /// The number of buckets that one child may ask for: half of the room.
    pub(crate) const fn asked_per_child_max(&self) -> usize {
        self.asked_max.div_ceil(2)
    }

    /// Adds a bucket that is not known yet. Returns `None` if there is no room.
    pub(crate) fn add(&mut self, now: MonoTime, name: &Bucket, listing: Listing) -> Option<&mut BucketState> {
        debug_assert!(!self.contains(name), "bucket {name} is known already");
        if listing != Listing::Exact && self.counts[listing as usize] >= self.asked_max {
            self.no_room.on_refused(now, name);
            return None;
        }
        self.no_room.on_room(name);
        self.counts[listing as usize] += 1;
        self.by_name.insert(name.clone(), self.states.len());
        self.states.push(BucketState::new(name.clone(), listing, now));
        self.states.last_mut()
    }

    /// Removes buckets.
    pub(crate) fn remove(&mut self, gone: &BTreeSet<Bucket>) {
        self.states.retain(|state| !gone.contains(&state.name));
        self.by_name = self.states.iter().map(|state| state.name.clone()).zip(0..).collect();
        self.count();
    }

    /// Returns true if the bucket is known.
    pub(crate) fn contains(&self, name: &Bucket) -> bool {
        self.by_name.contains_key(name)
    }

    /// A bucket by its name.
    pub(crate) fn get(&self, name: &Bucket) -> Option<&BucketState> {
        self.states.get(*self.by_name.get(name)?)
    }

    /// A bucket by its name, to change it.
    pub(crate) fn get_mut(&mut self, name: &Bucket) -> Option<&mut BucketState> {
        self.states.get_mut(*self.by_name.get(name)?)
    }

    /// All buckets.
    pub(crate) fn as_slice(&self) -> &[BucketState] {
        &self.states
    }

    /// All buckets, to change them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut BucketState> {
        self.states.iter_mut()
    }

    /// Calls `apply` for each bucket with the buffers that all buckets share.
    pub(crate) fn each_with_scratch(&mut self, mut apply: impl FnMut(&mut BucketState, &mut Scratch)) {
        for state in &mut self.states {
            apply(state, &mut self.scratch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_policy::Source;

    fn name(number: usize) -> Bucket {
        Bucket::new(&format!("b{number}")).unwrap()
    }

    fn policy(tenants: usize) -> Policy {
        let listed: String = (1..tenants).map(|number| format!("  t{number}: {{}}\n")).collect();
        let tenants = format!("tenants:\n  default: {{}}\n{listed}");
        let policy =
            Source { name: "policy.yaml", text: "buckets: { a: { limit: 1 }, 'api/*': { limit: 1 } }\n" };
        Policy::read(policy, Source { name: "tenants.yaml", text: &tenants }).unwrap().0
    }

    #[test]
    fn asked_buckets_are_bounded_and_leave_the_room_of_the_others() {
        let mut buckets = Buckets::default();
        buckets.on_policy(&policy(1));
        let mut add = |number, listing| buckets.add(MonoTime::ZERO, &name(number), listing).is_some();
        assert!((0..ASKED_MAX).all(|number| add(number, Listing::None)));
        assert!(!add(20_000, Listing::None));
        assert!((5_000..10_000).all(|number| add(number, Listing::Pattern)), "a pattern covers these");
        assert!(!add(20_001, Listing::Pattern));
        assert!((10_000..20_000).all(|number| add(number, Listing::Exact)), "the policy names these");
        assert_eq!(buckets.no_room.names().count(), 2);
        buckets.remove(&BTreeSet::from([name(7), name(5_007)]));
        assert!(!buckets.contains(&name(7)) && buckets.get(&name(8)).unwrap().name == name(8));
        assert!(buckets.add(MonoTime::ZERO, &name(20_000), Listing::None).is_some());
        assert!(buckets.no_room.names().eq([&name(20_001)]));
    }

    #[test]
    fn many_listed_tenants_leave_room_for_fewer_asked_buckets() {
        let mut buckets = Buckets::default();
        buckets.on_policy(&policy(4_000));
        assert_eq!((buckets.asked_max, buckets.asked_per_child_max()), (100, 50));
    }

    #[test]
    fn listing_is_by_exact_name_by_pattern_or_none() {
        let of = |name: &str| Listing::of(&policy(1), &Bucket::new(name).unwrap());
        assert_eq!([of("a"), of("api/x"), of("b")], [Listing::Exact, Listing::Pattern, Listing::None]);
    }
}
