//! Every bucket that the controller knows, from the policy or from a child that asked for it, up to a bound.

use std::collections::HashMap;

use plimsoll_core::names::Bucket;

use super::{BucketState, Scratch};

/// Buckets known at most, buckets outside of the policy included.
const BUCKETS_MAX: usize = 10_000;

/// The known buckets, in the order in which they became known.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    states: Vec<BucketState>,
    by_name: HashMap<Bucket, usize>,
    /// Buckets that found no room.
    pub(crate) rejected: u64,
    scratch: Scratch,
}

// === impl Buckets ===

impl Buckets {
    /// Adds a bucket that is not known yet. Returns `None` and counts it as rejected if there is no room.
    pub(crate) fn add(&mut self, name: &Bucket) -> Option<&mut BucketState> {
        debug_assert!(!self.contains(name), "bucket {name} is known already");
        if self.states.len() >= BUCKETS_MAX {
            self.rejected += 1;
            return None;
        }
        self.by_name.insert(name.clone(), self.states.len());
        self.states.push(BucketState::new(name.clone()));
        self.states.last_mut()
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

    #[test]
    fn bucket_beyond_the_bound_is_rejected_and_counted() {
        let mut buckets = Buckets::default();
        let name = |number: usize| Bucket::new(&format!("b{number}")).unwrap();
        for number in 0..BUCKETS_MAX {
            assert!(buckets.add(&name(number)).is_some());
        }
        assert!(buckets.add(&name(BUCKETS_MAX)).is_none());
        assert_eq!((buckets.as_slice().len(), buckets.rejected), (BUCKETS_MAX, 1));
        assert_eq!(buckets.get(&name(7)).unwrap().name, name(7));
        assert!(!buckets.contains(&name(BUCKETS_MAX)));
    }
}
