//! Every bucket that the controller knows. Those that the policy lists by their exact name always have room;
//! those that children ask for have room of their own, and leave when nothing needs them.

use std::collections::{BTreeSet, HashMap};

use plimsoll_core::directive::Unlisted;
use plimsoll_core::exchange::{AskedBuckets, Asker, Lease, NoRoom};
use plimsoll_core::names::{Bucket, nearest};
use plimsoll_core::quantity::MonoTime;
use plimsoll_policy::Policy;

use super::{BucketState, Scratch};

/// Asked buckets at most that a pattern of the policy covers, and as many again that nothing in it covers.
const ASKED_MAX: usize = 5_000;
/// Keys at most that follow from asked buckets, since each has an entry for every listed tenant.
const ASKED_KEYS_MAX: usize = 400_000;

/// Comparisons of names in one search for similar names, beside those of its last bucket.
const COMPARISONS_MAX: usize = 10_000;

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
    /// The asked buckets that a pattern of the policy covers.
    patterned: AskedBuckets,
    /// Those that nothing in it covers.
    unlisted: AskedBuckets,
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
    /// Bounds asked buckets by the number of tenants that a policy lists. Every bucket has the listing of this
    /// policy by now; those that the policy no longer names have one more lease.
    pub(crate) fn on_policy(&mut self, now: MonoTime, policy: &Policy) {
        let max = ASKED_MAX.min(ASKED_KEYS_MAX / policy.tenants().count().max(1));
        self.patterned.set_max(max);
        self.unlisted.set_max(max);
        for state in &self.states {
            let (name, patterned, unlisted) = (&state.name, &mut self.patterned, &mut self.unlisted);
            let lease = patterned.take(name).or_else(|| unlisted.take(name)).unwrap_or(Lease::kept(now));
            match state.listing {
                Listing::Exact => {}
                Listing::Pattern => patterned.put(name.clone(), lease),
                Listing::None => unlisted.put(name.clone(), lease),
            }
        }
    }

    /// Begins another lease of a bucket that a child asks for, which takes a place of its listing. Returns false
    /// if there is none: each child has half of them. What the policy names needs none.
    pub(crate) fn ask(&mut self, now: MonoTime, asker: &Asker, name: &Bucket, listing: Listing) -> bool {
        let asked = match listing {
            Listing::Exact => return true,
            Listing::Pattern => &mut self.patterned,
            Listing::None => &mut self.unlisted,
        };
        let has_room = asked.ask(now, asker, asked.half(), name);
        if has_room {
            self.no_room.on_room(name);
        } else {
            self.no_room.on_refused(now, asker, name);
        }
        has_room
    }

    /// Returns true if the policy does not name the bucket and no child has asked for it within a lease.
    pub(crate) fn has_lapsed(&self, now: MonoTime, bucket: &BucketState) -> bool {
        match bucket.listing {
            Listing::Exact => false,
            Listing::Pattern => self.patterned.has_lapsed(now, &bucket.name),
            Listing::None => self.unlisted.has_lapsed(now, &bucket.name),
        }
    }

    /// Adds a bucket that is not known yet.
    pub(crate) fn add(&mut self, name: &Bucket, listing: Listing) -> Option<&mut BucketState> {
        debug_assert!(!self.contains(name), "bucket {name} is known already");
        self.no_room.on_room(name);
        self.by_name.insert(name.clone(), self.states.len());
        self.states.push(BucketState::new(name.clone(), listing));
        self.states.last_mut()
    }

    /// Removes buckets.
    pub(crate) fn remove(&mut self, gone: &BTreeSet<Bucket>) {
        self.states.retain(|state| !gone.contains(&state.name));
        self.by_name = self.states.iter().map(|state| state.name.clone()).zip(0..).collect();
        self.patterned.remove(gone);
        self.unlisted.remove(gone);
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

    /// Searches the policy for names similar to those of some buckets that it does not list; the next call goes on
    /// with others. A search happens once for each bucket and policy.
    pub(crate) fn find_nearest(&mut self, policy: &Policy) {
        let mut budget = COMPARISONS_MAX;
        let unsearched =
            |state: &&mut BucketState| state.listing == Listing::None && state.unlisted.is_none();
        for state in self.states.iter_mut().filter(unsearched) {
            let name = state.name.as_str();
            let mut known = policy.exact_buckets().map(|(name, _)| name.as_str());
            let nearest = nearest(name, &mut known).map(str::to_owned);
            let nearest = nearest.or_else(|| nearest_of_patterns(name, policy));
            state.unlisted = Some(Unlisted::new(nearest.and_then(|name| Bucket::new(&name).ok()).as_ref()));
            budget = budget.saturating_sub(policy.entries().count().max(1));
            if budget == 0 {
                break;
            }
        }
    }

    /// Calls `apply` for each bucket with the buffers that all buckets share.
    pub(crate) fn each_with_scratch(&mut self, mut apply: impl FnMut(&mut BucketState, &mut Scratch)) {
        for state in &mut self.states {
            apply(state, &mut self.scratch);
        }
    }
}

/// Returns a name like `name` that a pattern of the policy matches: `api/users` for `ap/users` and the pattern `api/*`.
/// Only patterns whose beginning ends in a separator are compared.
fn nearest_of_patterns(name: &str, policy: &Policy) -> Option<String> {
    let patterns: Vec<String> = policy.patterns().map(|(pattern, _)| pattern).collect();
    patterns.iter().find_map(|pattern| {
        let beginning = pattern.strip_suffix('*')?;
        let separator = beginning.chars().next_back().filter(|last| !last.is_alphanumeric())?;
        let separators = beginning.matches(separator).count();
        let (at, _) = name.match_indices(separator).nth(separators - 1)?;
        let (start, end) = (&name[..at], &name[at + separator.len_utf8()..]);
        nearest(start, [beginning.strip_suffix(separator)?]).filter(|_| !end.is_empty())?;
        Some(format!("{beginning}{end}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::exchange::LEASE;
    use plimsoll_core::names::{Name, Zone};
    use plimsoll_core::report::{Identity, InstanceId, Role};
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

    fn asker(name: &str) -> Asker {
        let name_of = |name| Name::new(name).unwrap();
        Asker::from(&Identity {
            instance: InstanceId(1),
            name: name_of(name),
            service: name_of("plimsoll"),
            zone: Zone::new("a").unwrap(),
            role: Role::Aggregator,
        })
    }

    fn ask(buckets: &mut Buckets, of: &str, number: usize, listing: Listing) -> bool {
        let has_room = buckets.ask(MonoTime::ZERO, &asker(of), &name(number), listing);
        has_room && (buckets.contains(&name(number)) || buckets.add(&name(number), listing).is_some())
    }

    #[test]
    fn asked_buckets_are_bounded_and_leave_the_room_of_the_others() {
        let mut buckets = Buckets::default();
        buckets.on_policy(MonoTime::ZERO, &policy(1));
        let half = ASKED_MAX / 2;
        assert!((0..half).all(|number| ask(&mut buckets, "a", number, Listing::None)));
        assert!(!ask(&mut buckets, "a", 20_000, Listing::None));
        assert!((half..ASKED_MAX).all(|number| ask(&mut buckets, "b", number, Listing::None)));
        assert!(!ask(&mut buckets, "c", 20_000, Listing::None));
        assert!((5_000..7_500).all(|number| ask(&mut buckets, "a", number, Listing::Pattern)), "a pattern");
        assert!(!ask(&mut buckets, "a", 20_001, Listing::Pattern));
        assert!((10_000..20_000).all(|number| ask(&mut buckets, "a", number, Listing::Exact)), "the policy");
        assert_eq!(buckets.no_room.names().count(), 2);
        buckets.remove(&BTreeSet::from([name(7), name(5_007)]));
        assert!(!buckets.contains(&name(7)) && buckets.get(&name(8)).unwrap().name == name(8));
        assert!(ask(&mut buckets, "a", 20_000, Listing::None));
        assert!(buckets.no_room.names().eq([&name(20_001)]));
    }

    #[test]
    fn similar_names_are_searched_for_once_and_some_at_a_time() {
        let listed: String = (0..4_000).map(|number| format!("  n{number}: {{ limit: 1 }}\n")).collect();
        let text = format!("buckets:\n  checkout: {{ limit: 1 }}\n  'api/*': {{ limit: 1 }}\n{listed}");
        let tenants = Source { name: "tenants.yaml", text: "tenants:\n  default: {}\n" };
        let policy = Policy::read(Source { name: "policy.yaml", text: &text }, tenants).unwrap().0;
        let mut buckets = Buckets::default();
        for name in ["chekout", "xyzzy-unlike", "api/users", "checkout", "check-out", "late"] {
            let name = Bucket::new(name).unwrap();
            let listing = Listing::of(&policy, &name);
            buckets.add(&name, listing).unwrap();
        }
        let found = |buckets: &Buckets| -> Vec<Option<Option<String>>> {
            let each = buckets.as_slice().iter().map(|state| state.unlisted);
            each.map(|unlisted| Some(unlisted?.nearest().map(str::to_owned))).collect()
        };
        buckets.find_nearest(&policy);
        let checkout = || Some(Some("checkout".to_owned()));
        assert_eq!(
            found(&buckets),
            [checkout(), Some(None), None, None, checkout(), None],
            "10,000 comparisons"
        );
        buckets.find_nearest(&policy);
        assert_eq!(found(&buckets)[5], Some(None));
    }

    #[test]
    fn similar_names_are_searched_for_among_patterns() {
        let text = "buckets:\n  users: { limit: 1 }\n  'api/*': { limit: 1 }\n  'a:b:*': { limit: 1 }\n  'or*': { limit: 1 }\n";
        let tenants = Source { name: "tenants.yaml", text: "tenants:\n  default: {}\n" };
        let policy = Policy::read(Source { name: "policy.yaml", text }, tenants).unwrap().0;
        for (name, expected) in [
            ("ap/users", Some("api/users")),
            ("apis/users/7", Some("api/users/7")),
            ("a:c:x", Some("a:b:x")),
            ("ui/users", None),
            ("api-users", None),
            ("ap/", None),
            ("orders", None),
        ] {
            assert_eq!(nearest_of_patterns(name, &policy).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn many_listed_tenants_leave_room_for_fewer_asked_buckets() {
        let mut buckets = Buckets::default();
        buckets.on_policy(MonoTime::ZERO, &policy(4_000));
        assert!((0..50).all(|number| ask(&mut buckets, "a", number, Listing::None)));
        assert!(!ask(&mut buckets, "a", 50, Listing::None));
    }

    #[test]
    fn bucket_that_the_policy_names_no_more_has_one_more_lease_and_its_place_moves_with_its_listing() {
        let mut buckets = Buckets::default();
        buckets.on_policy(MonoTime::ZERO, &policy(4_000));
        assert!((0..50).all(|number| ask(&mut buckets, "a", number, Listing::None)));
        buckets.add(&name(60), Listing::Exact);
        buckets.get_mut(&name(0)).unwrap().listing = Listing::Pattern;
        buckets.get_mut(&name(60)).unwrap().listing = Listing::None;
        let later = MonoTime::from_elapsed(LEASE);
        buckets.on_policy(later, &policy(4_000));
        let has_lapsed = |number| buckets.has_lapsed(later, buckets.get(&name(number)).unwrap());
        assert_eq!([0, 1, 60].map(has_lapsed), [true, true, false]);
        assert!(ask(&mut buckets, "a", 50, Listing::None) && !ask(&mut buckets, "a", 51, Listing::None));
    }

    #[test]
    fn listing_is_by_exact_name_by_pattern_or_none() {
        let of = |name: &str| Listing::of(&policy(1), &Bucket::new(name).unwrap());
        assert_eq!([of("a"), of("api/x"), of("b")], [Listing::Exact, Listing::Pattern, Listing::None]);
    }
}
