//! Every bucket that the controller knows. Buckets that the policy lists by their exact name always
//! have room. Buckets under a pattern have their own room, and leave when nothing needs them. Of
//! names without a policy, only the latest are remembered.

use std::collections::BTreeMap;

use plimsoll_core::directive::Unlisted;
use plimsoll_core::exchange::{LatestNames, UNUSED};
use plimsoll_core::names::{Bucket, nearest};
use plimsoll_core::quantity::MonoTime;
use plimsoll_policy::Policy;

use super::{BucketState, RefusalHistory, Scratch};

/// Buckets at most that a pattern of the policy covers.
const PATTERNED_MAX: usize = 5_000;
/// Keys at most that follow from such buckets, since each has an entry for every listed tenant.
const PATTERNED_KEYS_MAX: usize = 400_000;

/// Comparisons of names in one search for similar names, in addition to the comparisons of its last
/// bucket.
const COMPARISONS_MAX: usize = 10_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Listing {
    Exact,
    Pattern,
    /// Not at all.
    #[default]
    None,
}

#[derive(Debug, Default)]
pub(crate) struct Buckets {
    pub(crate) states: BTreeMap<Bucket, BucketState>,
    /// Maximum number of buckets under patterns.
    patterned_max: usize,
    /// The latest names under patterns that found no room.
    pub(crate) no_room: LatestNames,
    /// The latest names that the policy does not cover.
    pub(crate) unlisted: LatestNames,
    /// What keys were refused in the last 24 hours.
    pub(crate) refusals: RefusalHistory,
    scratch: Scratch,
}

// === impl Listing ===

impl Listing {
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
    /// Bounds the buckets that a pattern covers by the number of tenants that a policy lists. The
    /// search for similar names begins anew. Returns the `unlisted` names that this policy covers.
    pub(crate) fn on_policy(&mut self, policy: &Policy) -> Vec<Bucket> {
        self.patterned_max =
            PATTERNED_MAX.min(PATTERNED_KEYS_MAX / policy.tenants().count().max(1));
        let covered = self.unlisted.iter().map(|(name, _)| name);
        let covered = covered
            .filter(|name| Listing::of(policy, name) != Listing::None)
            .cloned();
        let covered: Vec<Bucket> = covered.collect();
        covered.iter().for_each(|name| self.unlisted.remove(name));
        self.unlisted
            .iter_mut()
            .for_each(|(_, asked)| asked.nearest = None);
        covered
    }

    /// The number of further buckets under patterns that find room.
    pub(crate) fn room(&self) -> usize {
        let patterned = self
            .states
            .values()
            .filter(|state| state.listing == Listing::Pattern)
            .count();
        self.patterned_max.saturating_sub(patterned)
    }

    /// Maximum number of buckets under patterns that one child may ask for: half of all, so that it never takes all.
    pub(crate) const fn per_child_max(&self) -> usize {
        self.patterned_max.div_ceil(2)
    }

    /// Returns true if the policy does not cover the bucket, or covers it by a pattern and no aggregator is subscribed
    /// to it. While there is room, such a bucket stays for some time after its last subscription.
    pub(crate) fn is_unused(now: MonoTime, bucket: &BucketState, has_room: bool) -> bool {
        match bucket.listing {
            Listing::Exact => false,
            Listing::Pattern => {
                // The tick has just noted the present time at each bucket with a subscription.
                let is_subscribed = bucket.subscribed_at == now;
                !is_subscribed && (!has_room || now.since(bucket.subscribed_at) >= UNUSED)
            }
            Listing::None => true,
        }
    }

    pub(crate) fn add(&mut self, name: &Bucket, listing: Listing) -> &mut BucketState {
        debug_assert!(
            !self.states.contains_key(name),
            "bucket {name} is known already"
        );
        self.no_room.remove(name);
        self.states
            .entry(name.clone())
            .or_insert_with(|| BucketState::new(name.clone(), listing))
    }

    /// Searches the policy for names similar to some uncovered names; the next call continues with
    /// others. A search happens once for each name and policy.
    pub(crate) fn find_nearest(&mut self, policy: &Policy) {
        let mut budget = COMPARISONS_MAX;
        for (name, asked) in self
            .unlisted
            .iter_mut()
            .filter(|(_, asked)| asked.nearest.is_none())
        {
            let name = name.as_str();
            let mut known = policy.exact_buckets().map(|(name, _)| name.as_str());
            let nearest = nearest(name, &mut known).and_then(|name| Bucket::new(name).ok());
            asked.nearest = Some(Unlisted::new(nearest.as_ref()));
            budget = budget.saturating_sub(policy.entries().count().max(1));
            if budget == 0 {
                break;
            }
        }
    }

    pub(crate) fn each_with_scratch(
        &mut self,
        mut apply: impl FnMut(&mut BucketState, &mut Scratch),
    ) {
        for state in self.states.values_mut() {
            apply(state, &mut self.scratch);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::brain::tests::policy_of;

    fn name(number: usize) -> Bucket {
        Bucket::new(&format!("b{number}")).unwrap()
    }

    fn policy(tenants: usize) -> Arc<Policy> {
        let listed: String = (1..tenants)
            .map(|number| format!("  t{number}: {{}}\n"))
            .collect();
        policy_of(
            "buckets: { a: { limit: 1 }, 'api/*': { limit: 1 } }\n",
            &format!("tenants:\n  default: {{}}\n{listed}"),
        )
    }

    #[test]
    fn listed_tenants_shrink_room_for_patterned_buckets() {
        for (tenants, room) in [(1, PATTERNED_MAX), (4_000, 100)] {
            let mut buckets = Buckets::default();
            assert_eq!(buckets.on_policy(&policy(tenants)), []);
            assert_eq!((buckets.room(), buckets.per_child_max()), (room, room / 2));
            for number in 0..room {
                buckets.add(&name(number), Listing::Pattern);
            }
            assert_eq!(buckets.room(), 0);
            buckets.states.remove(&name(7));
            assert_eq!(buckets.room(), 1);
        }
    }

    #[test]
    fn covered_unlisted_name_is_returned() {
        let mut buckets = Buckets::default();
        ["a", "api/x", "c"].iter().for_each(|name| {
            buckets
                .unlisted
                .note(MonoTime::ZERO, &Bucket::new(name).unwrap());
        });
        let covered = buckets.on_policy(&policy(1));
        assert!(covered.iter().map(Bucket::as_str).eq(["a", "api/x"]));
        assert!(
            buckets
                .unlisted
                .iter()
                .map(|(name, _)| name.as_str())
                .eq(["c"])
        );
    }

    #[test]
    fn similar_names_are_searched_once() {
        let listed: String = (0..4_000)
            .map(|number| format!("  n{number}: {{ limit: 1 }}\n"))
            .collect();
        let text =
            format!("buckets:\n  checkout: {{ limit: 1 }}\n  'api/*': {{ limit: 1 }}\n{listed}");
        let policy = policy_of(&text, "tenants:\n  default: {}\n");
        let mut buckets = Buckets::default();
        for name in ["chekout", "xyzzy-unlike", "check-out", "zzz"] {
            buckets
                .unlisted
                .note(MonoTime::ZERO, &Bucket::new(name).unwrap());
        }
        let found = |buckets: &Buckets| -> Vec<Option<Option<String>>> {
            let each = buckets.unlisted.iter().map(|(_, asked)| asked.nearest);
            each.map(|unlisted| Some(unlisted?.nearest().map(str::to_owned)))
                .collect()
        };
        buckets.find_nearest(&policy);
        let checkout = || Some(Some("checkout".to_owned()));
        assert_eq!(
            found(&buckets),
            [checkout(), checkout(), Some(None), None],
            "10,000 comparisons"
        );
        buckets.find_nearest(&policy);
        assert_eq!(found(&buckets)[3], Some(None));
    }

    #[test]
    fn listing_is_exact_patterned_or_absent() {
        let of = |name: &str| Listing::of(&policy(1), &Bucket::new(name).unwrap());
        assert_eq!(
            [of("a"), of("api/x"), of("b")],
            [Listing::Exact, Listing::Pattern, Listing::None]
        );
    }
}
