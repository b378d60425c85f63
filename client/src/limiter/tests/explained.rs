//! Tests of decisions with their reasons: costs, several keys, what is withheld, and what counts nothing.

use plimsoll_core::decision::token_bucket::TokenCount;
use std::time::Duration;

use futures_util::FutureExt;
use plimsoll_core::decision::{Reason, Verdict};
use plimsoll_core::quantity::{Limit, Rate};
use proptest::prelude::*;

use super::*;
use crate::hot::decision::{Decided, Peek};
use crate::responses::ObservedResponse;

fn key<'a>(bucket: &'a str, tenant: &'a str, cost: u32) -> Request<'a> {
    Request::new(bucket, tenant).cost(cost)
}

fn explain(limiter: &Limiter, request: &Request<'_>) -> Decided {
    limiter.explain(request).now_or_never().unwrap()
}

fn direct_by(limiter: &Limiter, bucket: &str, word: DirectiveWord, tokens: impl Into<Option<u32>>) {
    let place = limiter.bucket(bucket).unwrap().place;
    let tokens = tokens.into();
    if let Some(tokens) = tokens {
        let tokens = TokenCount::new(f64::from(tokens));
        limiter.table.fill(place.default_key, tokens, tokens);
        limiter.table.refill();
    }
    limiter
        .table
        .publish(place.default_key, word.guarded(tokens.is_some()));
}

/// Returns the counts of acme, which a bucket without a valid name does not have.
fn counted(limiter: &Limiter, bucket: &str) -> Counts {
    let bucket = limiter.bucket(bucket);
    bucket.map_or(Counts::ZERO, |bucket| bucket.key("acme").counts())
}

/// Returns the tokens that were used of a bucket's guard.
fn used(limiter: &Limiter, bucket: &str) -> u32 {
    let key = limiter.bucket(bucket).unwrap().place.default_key;
    limiter.table.counters.used(key)
}

fn refused(decided: &Decided) -> Option<Reason> {
    match decided.verdict {
        Verdict::Admit => None,
        Verdict::Refuse(refusal) => Some(refusal.reason()),
    }
}

fn together(limiter: &Limiter, requests: &[Request<'_>]) -> Vec<(Option<Reason>, Option<Reason>)> {
    let request = Request::all(requests);
    let decided = limiter.explain_each(&request).now_or_never().unwrap();
    decided
        .into_iter()
        .map(|decided| (refused(&decided), decided.withheld))
        .collect()
}

const OVERLOAD: Option<Reason> = Some(Reason::ClusterOverload);
const GUARD: Option<Reason> = Some(Reason::BurstGuard);

#[test]
fn explained_refusal_is_always_counted() {
    for (word, tokens, cost, expected) in [
        (word(1.0), None, 1, OVERLOAD),
        (word(1.0), None, 7, OVERLOAD),
        (
            word(1.0).at_tenant_limit(true),
            None,
            1,
            Some(Reason::TenantLimit),
        ),
        (word(0.0), Some(0), 1, GUARD),
        (word(0.0), Some(4), 3, None),
        (word(0.0), Some(0), 7, GUARD),
        (word(0.0).cold(true), Some(0), 1, Some(Reason::ColdStart)),
        (word(0.0), None, 1, None),
        (DirectiveWord::NOTHING, None, 3, None),
    ] {
        for is_enforced in [true, false] {
            let limiter = limiter();
            let word = if word == DirectiveWord::NOTHING {
                word
            } else {
                word.enforced(is_enforced)
            };
            direct_by(&limiter, "b", word, tokens);
            let decided = explain(&limiter, &key("b", "acme", cost));
            let (carried_out, withheld) = if is_enforced {
                (expected, None)
            } else {
                (None, expected)
            };
            assert_eq!(
                (refused(&decided), decided.withheld),
                (carried_out, withheld),
                "{word:?} {tokens:?} {cost}"
            );
            let counts = counted(&limiter, "b");
            let n = |is: bool| u64::from(is) * u64::from(cost);
            assert_eq!(counts.offered, u64::from(cost));
            assert_eq!(counts.refused(), n(carried_out.is_some()));
            assert_eq!(counts.would_dropped, n(withheld.is_some()));
        }
    }
}

#[test]
fn request_without_cost_leaves_no_trace() {
    let (limiter, mut subscription) = with_keys(64, 7);
    direct_by(&limiter, "all", word(1.0).enforced(true), None);
    direct_by(&limiter, "watched", word(1.0), None);
    direct_by(&limiter, "empty", word(0.0).enforced(true), 0);
    direct_by(&limiter, "full", word(0.0).enforced(true), 5);
    let before = used(&limiter, "full");
    for _ in 0..100 {
        for (bucket, expected, withheld) in [
            ("all", OVERLOAD, None),
            ("watched", None, OVERLOAD),
            ("empty", GUARD, None),
            ("full", None, None),
            ("unknown", None, None),
            ("no name", None, None),
        ] {
            let decided = explain(&limiter, &key(bucket, "new-tenant", 0));
            assert_eq!(
                (refused(&decided), decided.withheld),
                (expected, withheld),
                "{bucket}"
            );
        }
    }
    assert_eq!(used(&limiter, "full"), before, "no token is taken");
    let counts = subscription.counts();
    assert!(
        counts.values().all(|counts| *counts == Counts::ZERO),
        "{counts:?}"
    );
    assert!(
        counts.keys().all(|key| key.tenant.as_str() == "default"),
        "no name takes room: {counts:?}"
    );
    assert_eq!(limiter.table.untracked(), 0);
}

#[test]
fn only_keys_that_refuse_say_so() {
    let limiter = limiter();
    direct_by(&limiter, "all", word(1.0).enforced(true), None);
    direct_by(&limiter, "most", word(0.999_999_9).enforced(true), None);
    direct_by(&limiter, "open", word(0.0).enforced(true), None);
    direct_by(&limiter, "watched", word(1.0), None);
    direct_by(&limiter, "empty", word(0.0).enforced(true), 0);
    direct_by(&limiter, "rich", word(0.0).enforced(true), 50);
    let (ok, no) = ((None, None), (OVERLOAD, None));
    let used = |bucket| used(&limiter, bucket);
    for (requests, expected) in [
        (
            &[("open", 1), ("all", 1), ("rich", 7)][..],
            &[ok, no, ok][..],
        ),
        (&[("most", 1), ("all", 1), ("most", 1)], &[no, no, no]),
        (&[("watched", 1), ("all", 1)], &[(None, OVERLOAD), no]),
        (&[("watched", 1), ("open", 1)], &[(None, OVERLOAD), ok]),
        (
            &[("rich", 7), ("empty", 1), ("open", 2)],
            &[ok, (GUARD, None), ok],
        ),
        (&[("rich", 7), ("all", 0)], &[ok, no]),
        (&[("rich", 7), ("empty", 0)], &[ok, (GUARD, None)]),
        (&[("rich", 10_000), ("empty", 1)], &[ok, (GUARD, None)]),
        (
            &[("no name", 1), ("all", 1), ("unknown-1", 1)],
            &[ok, no, ok],
        ),
        (&[("all", 1)], &[no]),
        (&[], &[]),
    ] {
        let keys: Vec<_> = requests
            .iter()
            .map(|(bucket, cost)| key(bucket, "acme", *cost))
            .collect();
        let before: Vec<_> = keys
            .iter()
            .map(|key| counted(&limiter, key.bucket()))
            .collect();
        assert_eq!(together(&limiter, &keys), expected, "{requests:?}");
        let is_refused = expected.iter().any(|(refused, _)| refused.is_some());
        for (key, before) in keys.iter().zip(before) {
            let new = counted(&limiter, key.bucket()).since(before);
            let times = keys
                .iter()
                .filter(|other| other.bucket() == key.bucket())
                .map(|key| u64::from(key.cost))
                .sum();
            if key.bucket() != "no name" {
                let refused = if is_refused { times } else { 0 };
                assert_eq!(
                    (new.offered, new.refused()),
                    (times, refused),
                    "{} of {requests:?}",
                    key.bucket()
                );
            }
        }
        assert_eq!(
            used("rich"),
            0,
            "a refused request takes no token: {requests:?}"
        );
    }
    assert_eq!(
        together(
            &limiter,
            &[
                key("rich", "a", 20),
                key("rich", "b", 30),
                key("open", "a", 1)
            ]
        ),
        [ok; 3]
    );
    assert_eq!(used("rich"), 50);
    assert_eq!(
        together(&limiter, &[key("rich", "a", 1), key("open", "a", 1)]),
        [(GUARD, None), ok]
    );
}

#[test]
fn unnamed_bucket_has_no_preview() {
    let limiter = limiter();
    let response = ObservedResponse::status(200).took(Duration::from_millis(7));
    assert_eq!(
        (limiter.peek(&key("b", "acme", 1)), limiter.limit("b")),
        (Peek::default(), None)
    );
    assert!(!limiter.record(&key("b", "acme", 1), response));
    direct_by(&limiter, "b", word(0.25).enforced(true), None);
    let peek = limiter.peek(&key("b", "acme", 1));
    assert_eq!(
        (peek.ratio, peek.enforced, peek.exhausted),
        (word(0.25).ratio(), true, false)
    );
    assert_eq!(limiter.limit("b"), None, "its limit is not known yet");
    let place = limiter.bucket("b").unwrap().place;
    limiter
        .table
        .limits
        .set(place.bucket, Limit::PerSecond(Rate::new(12.5).unwrap()));
    assert_eq!(limiter.limit("b"), Some(12.5));
    limiter.table.limits.set(place.bucket, Limit::Unlimited);
    assert_eq!(limiter.limit("b"), None);
    let responses = [
        response,
        ObservedResponse::status(503).took(Duration::from_millis(9)),
        ObservedResponse::success(),
        ObservedResponse::failure(),
    ];
    assert!(
        responses
            .into_iter()
            .all(|response| limiter.record(&key("b", "acme", 1), response))
    );
    let recorded = limiter.table.responses.snapshots(place.bucket as usize);
    let [("", all)] = &recorded[..] else {
        panic!("{recorded:?}")
    };
    let mut codes: Vec<_> = all
        .codes
        .iter()
        .map(|(code, count)| (code.as_str(), *count))
        .collect();
    codes.sort_unstable();
    assert_eq!(codes, [("200", 1), ("503", 1), ("error", 1), ("ok", 1)]);
    assert_eq!(all.durations.count, 2, "only those with a latency");
}

const BUCKETS: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Copy, Debug)]
struct Directed {
    ratio: f64,
    tokens: Option<u32>,
    is_enforced: bool,
}

fn directed() -> impl Strategy<Value = Directed> {
    let ratio = prop_oneof![Just(0.0), Just(1.0), 0.0..1.0];
    (ratio, prop::option::of(0..40_u32), any::<bool>()).prop_map(|(ratio, tokens, is_enforced)| {
        Directed {
            ratio,
            tokens,
            is_enforced,
        }
    })
}

proptest! {
    #[test]
    fn request_pays_for_all_keys_or_none(
        directives in prop::array::uniform4(directed()),
        requests in prop::collection::vec(prop::collection::vec((0..4_usize, 0..12_u32), 1..6), 1..40),
    ) {
        let limiter = limiter();
        for (bucket, Directed { ratio, tokens, is_enforced }) in BUCKETS.into_iter().zip(directives) {
            direct_by(&limiter, bucket, word(ratio).enforced(is_enforced), tokens);
        }
        let used = |bucket| used(&limiter, bucket);
        for request in requests {
            let keys: Vec<_> = request.iter().map(|(at, cost)| key(BUCKETS[*at], "acme", *cost)).collect();
            let before = BUCKETS.map(|bucket| (counted(&limiter, bucket), used(bucket)));
            let decided = limiter.explain_each(&Request::all(&keys)).now_or_never().unwrap();
            prop_assert_eq!(decided.len(), keys.len());
            let is_refused = decided.iter().any(|decided| !decided.verdict.is_admit());
            for ((at, bucket), (counts_before, used_before)) in BUCKETS.into_iter().enumerate().zip(before) {
                let of_bucket = || request.iter().zip(&decided).filter(move |((of, _), _)| *of == at);
                let cost: u32 = of_bucket().map(|((_, cost), _)| *cost).sum();
                let new = counted(&limiter, bucket).since(counts_before);
                prop_assert_eq!(new.offered, u64::from(cost));
                prop_assert_eq!(new.refused(), if is_refused { u64::from(cost) } else { 0 });
                let withheld: u32 = of_bucket().filter(|(_, by)| by.withheld.is_some()).map(|((_, cost), _)| *cost).sum();
                prop_assert_eq!(new.would_dropped, if is_refused { 0 } else { u64::from(withheld) });
                let is_guarded = directives[at].tokens.is_some();
                let due = if is_refused || !is_guarded { 0 } else { cost - withheld };
                prop_assert_eq!(used(bucket).wrapping_sub(used_before), due, "tokens of {}", bucket);
                for (_, by) in of_bucket() {
                    prop_assert!(by.verdict.is_admit() || directives[at].is_enforced && by.withheld.is_none());
                    prop_assert!(by.withheld.is_none() || !directives[at].is_enforced);
                }
            }
        }
        // All that was admitted fits the tokens, except for what a cost above the depth leaves as a debt.
        for (bucket, directed) in BUCKETS.into_iter().zip(directives) {
            prop_assert!(directed.tokens.is_none_or(|tokens| used(bucket) <= tokens.max(1) + 11), "{}", bucket);
        }
    }
}
