//! The home of a bucket among several aggregators, by rendezvous hashing: every client computes the
//! same one, only from the names. Pure.

use plimsoll_core::names::stable_hash;

/// Separates the two names that are hashed; no name contains it.
const SEPARATOR: u8 = 0xFF;
/// Hashed before the name of every endpoint, with any scheme of its address: clients that connect
/// in different ways compute the same homes.
const SCHEME: &str = "http://";

/// Returns the weight of an endpoint for a bucket (Thaler and Ravishankar, "A name-based mapping scheme for
/// rendezvous", 1996). The endpoint with the largest weight is the bucket's home. When an endpoint leaves,
/// only its own buckets get another home, each the next in its own order; a new endpoint takes an even share
/// from all others.
///
/// The weight depends on the two names as they are written, and on nothing else.
pub(super) fn weight(bucket: &str, endpoint: &str) -> u64 {
    stable_hash(
        bucket
            .bytes()
            .chain([SEPARATOR])
            .chain(SCHEME.bytes())
            .chain(endpoint.bytes()),
    )
}

/// Returns the home of a bucket among `endpoints`; of two with the same weight, the one with the later name.
/// Linear in the endpoints.
pub(super) fn home<'a, I: Copy>(
    bucket: &str,
    endpoints: impl IntoIterator<Item = (I, &'a str)>,
) -> Option<I> {
    let ranked = endpoints
        .into_iter()
        .map(|(id, name)| (weight(bucket, name), name, id));
    ranked
        .max_by_key(|(weight, name, _)| (*weight, *name))
        .map(|(_, _, id)| id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(count: usize) -> Vec<String> {
        (0..count)
            .map(|at| format!("aggregator-{at}:7410"))
            .collect()
    }

    fn home_of(bucket: &str, endpoints: &[String]) -> Option<String> {
        home(
            bucket,
            endpoints
                .iter()
                .map(|name| (name.clone(), name.as_str()))
                .map(|(_, name)| (name, name)),
        )
        .map(ToOwned::to_owned)
    }

    /// The homes are part of the protocol (`docs/guides/several-aggregators.md`). These were computed by
    /// other means than this code.
    #[test]
    fn home_is_as_the_protocol_defines() {
        let endpoints = ["a:7410", "b:7410", "c:7410"].map(ToOwned::to_owned);
        for (bucket, home) in [
            ("checkout", 'c'),
            ("search", 'b'),
            ("api/users", 'a'),
            ("orders", 'a'),
            ("login", 'c'),
        ] {
            assert_eq!(
                home_of(bucket, &endpoints),
                Some(format!("{home}:7410")),
                "{bucket}"
            );
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
        assert!(
            counts.iter().all(|count| (850..=1_150).contains(count)),
            "{counts:?}"
        );
    }

    proptest! {
        #[test]
        fn home_ignores_the_endpoint_order(
            bucket in "[a-z]{1,12}", endpoints in Just(names(12)).prop_shuffle(),
        ) {
            prop_assert_eq!(home_of(&bucket, &endpoints), home_of(&bucket, &names(12)));
        }

        #[test]
        fn only_buckets_of_a_lost_endpoint_move(
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
