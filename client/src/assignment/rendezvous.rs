//! Which of several endpoints a bucket belongs to: the same answer in every client, without anybody asking anybody.
//! Pure.

use plimsoll_core::names::stable_hash;

/// Stands between the two names that are hashed; no name contains it.
const BETWEEN: u8 = 0xFF;

/// How much an endpoint is wanted by a bucket, by rendezvous hashing (Thaler and Ravishankar, "A name-based mapping
/// scheme for rendezvous", 1996). The largest weight has the bucket: when an endpoint goes, only its own buckets go
/// elsewhere, each to the next in its own order; when one comes, it takes an even share from all the others.
///
/// It depends on both names as they are written, and on nothing else.
pub(crate) fn weight(bucket: &str, endpoint: &str) -> u64 {
    stable_hash(bucket.bytes().chain([BETWEEN]).chain(endpoint.bytes()))
}

/// The one of `endpoints` that a bucket belongs to; of two with the same weight, the one whose name comes later.
/// Linear in the endpoints.
pub(crate) fn home<'a, I: Copy>(
    bucket: &str,
    endpoints: impl IntoIterator<Item = (I, &'a str)>,
) -> Option<I> {
    let ranked = endpoints.into_iter().map(|(id, name)| (weight(bucket, name), name, id));
    ranked.max_by_key(|(weight, name, _)| (*weight, *name)).map(|(_, _, id)| id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|at| format!("http://aggregator-{at}:7410")).collect()
    }

    fn home_of(bucket: &str, endpoints: &[String]) -> Option<String> {
        home(bucket, endpoints.iter().map(|name| (name.clone(), name.as_str())).map(|(_, name)| (name, name)))
            .map(ToOwned::to_owned)
    }

    /// Who has what is part of the protocol (`docs/operating.md`): these were worked out apart from this code.
    #[test]
    fn the_home_is_the_same_in_every_implementation() {
        let endpoints = ["http://a:7410", "http://b:7410", "http://c:7410"].map(ToOwned::to_owned);
        for (bucket, home) in
            [("checkout", 'c'), ("search", 'b'), ("api/users", 'a'), ("orders", 'a'), ("login", 'c')]
        {
            assert_eq!(home_of(bucket, &endpoints), Some(format!("http://{home}:7410")), "{bucket}");
        }
        assert_eq!(home_of("checkout", &[]), None);
    }

    #[test]
    fn buckets_are_spread_evenly() {
        let endpoints = names(8);
        let mut counts = [0; 8];
        for bucket in 0..8_000 {
            let bucket = format!("bucket-{bucket}");
            let home = home_of(&bucket, &endpoints).unwrap();
            counts[endpoints.iter().position(|name| *name == home).unwrap()] += 1;
        }
        // 1,000 each, give or take five standard deviations.
        assert!(counts.iter().all(|count| (850..=1_150).contains(count)), "{counts:?}");
    }

    proptest! {
        #[test]
        fn everybody_agrees_in_whatever_order_they_know_the_endpoints(
            bucket in "[a-z]{1,12}", endpoints in Just(names(12)).prop_shuffle(),
        ) {
            prop_assert_eq!(home_of(&bucket, &endpoints), home_of(&bucket, &names(12)));
        }

        #[test]
        fn only_the_buckets_of_the_one_that_goes_move(
            buckets in prop::collection::vec("[a-z/]{1,12}", 1..50), count in 2..20usize, gone in any::<prop::sample::Index>(),
        ) {
            let all = names(count);
            let gone = gone.get(&all).clone();
            let left: Vec<String> = all.iter().filter(|name| **name != gone).cloned().collect();
            for bucket in buckets {
                let (before, after) = (home_of(&bucket, &all), home_of(&bucket, &left));
                prop_assert!(before == after || before == Some(gone.clone()), "{}", bucket);
            }
        }
    }
}
