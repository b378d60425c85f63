//! Tests of decisions by handle, by name, by cost and by several keys.

mod explained;

use super::*;
use crate::hot::decision::Peek;
use crate::hot::directive_word::DirectiveWord;
use plimsoll_core::decision::token_bucket::TokenCount;
use plimsoll_core::names::{Name, Zone};
use plimsoll_core::quantity::DropRatio;
use plimsoll_core::report::{Counts, Identity, InstanceId, Role};

use crate::subscription::Subscription;

fn limiter() -> Limiter {
    with_keys(64, 7).0
}

pub(crate) fn with_keys(keys_max: usize, seed: u64) -> (Limiter, Subscription) {
    let identity = Identity {
        instance: InstanceId(1),
        name: Name::new("shop-1").unwrap(),
        service: Name::new("shop").unwrap(),
        zone: Zone::new("z").unwrap(),
        role: Role::Client,
    };
    Limiter::without_transport(identity, keys_max, 0, seed)
}

fn word(ratio: f64) -> DirectiveWord {
    DirectiveWord::new(DropRatio::new((ratio * f64::from(DropRatio::ONE)) as u32).unwrap())
}

fn direct(limiter: &Limiter, bucket: &str, word: DirectiveWord) -> BucketHandle {
    let bucket = limiter.bucket(bucket).unwrap();
    limiter.table.publish(bucket.place.default_key, word);
    bucket
}

/// Sets a guard with `tokens` tokens, which is never refilled.
fn guard(limiter: &Limiter, bucket: &BucketHandle, tokens: f64, depth: f64) {
    limiter.table.fill(
        bucket.place.default_key,
        TokenCount::new(tokens),
        TokenCount::new(depth),
    );
    limiter.table.refill();
}

fn admits(limiter: &Limiter, bucket: &BucketHandle, tenant: &str, cost: u32) -> bool {
    limiter
        .check(&Request::new(bucket, tenant).cost(cost))
        .is_admit()
}

/// Offered, dropped, guard-dropped, would-dropped and would-guard-dropped.
fn counts(bucket: &BucketHandle, tenant: &str) -> [u64; 5] {
    let counts = bucket.key(tenant).counts();
    let Counts {
        offered,
        dropped,
        guard_dropped,
        would_dropped,
        would_guard_dropped,
        ..
    } = counts;
    [
        offered,
        dropped,
        guard_dropped,
        would_dropped,
        would_guard_dropped,
    ]
}

#[test]
fn empty_guard_is_exhausted_only_without_headroom() {
    let limiter = limiter();
    let bucket = direct(&limiter, "b", word(0.0).enforced(true).guarded(true));
    guard(&limiter, &bucket, 0.0, 4.0);
    assert!(limiter.peek(&Request::new(&bucket, "acme")).exhausted);
    let headroom = limiter.table.headroom(bucket.place.bucket);
    limiter
        .table
        .fill(headroom, TokenCount::new(2.0), TokenCount::new(4.0));
    limiter.table.refill();
    assert!(!limiter.peek(&Request::new(&bucket, "acme")).exhausted);
    let passed = [3, 1, 1, 1].map(|cost| admits(&limiter, &bucket, "acme", cost));
    assert_eq!(passed, [false, true, true, false]);
    assert!(limiter.peek(&Request::new(&bucket, "acme")).exhausted);
    limiter
        .table
        .fill(headroom, TokenCount::new(2.0), TokenCount::new(4.0));
    limiter.table.publish(
        bucket.place.default_key,
        word(0.0).enforced(true).guarded(true).at_tenant_limit(true),
    );
    assert!(
        limiter.peek(&Request::new(&bucket, "acme")).exhausted,
        "a key at its tenant limit takes no headroom"
    );
}

#[test]
fn peek_changes_nothing() {
    let limiter = limiter();
    let bucket = direct(&limiter, "b", word(0.25).enforced(true).guarded(true));
    guard(&limiter, &bucket, 1.0, 4.0);
    let expected = Peek {
        ratio: word(0.25).ratio(),
        enforced: true,
        exhausted: false,
    };
    for _ in 0..100 {
        assert_eq!(
            (
                limiter.peek(&Request::new(&bucket, "acme")),
                limiter.peek(&bucket.key("jo").request())
            ),
            (expected, expected)
        );
    }
    assert_eq!(
        limiter.table.known_target(bucket.place, "acme", "").key,
        bucket.place.default_key,
        "it took no room"
    );
    while !limiter.peek(&Request::new(&bucket, "acme")).exhausted {
        let _ = limiter.check(&Request::new(&bucket, "acme"));
    }
    let both = [
        Request::new(&bucket, "acme"),
        Request::new("undirected", "acme"),
    ];
    assert_eq!(
        limiter.peek(&Request::all(&both)),
        Peek {
            exhausted: true,
            ..expected
        },
        "the strictest"
    );
    assert_eq!(limiter.peek(&both[1]), Peek::default());
}

#[test]
fn nested_request_of_several_is_a_setup_problem() {
    let limiter = limiter();
    let (one, other) = (Request::new("b", "acme"), Request::new("c", "acme"));
    let inner = [one, other];
    let nested = Request::all(&inner);
    for (keys, problems) in [(&inner[..], 0), (&[nested], 1), (&[nested, one], 1)] {
        assert!(limiter.check(&Request::all(keys)).is_admit());
        let found = limiter.setup_problems();
        let nested = found
            .iter()
            .filter(|it| **it == SetupProblem::NestedRequest);
        assert_eq!(nested.count(), problems);
    }
}

#[test]
fn request_names_leave_room_for_declared_buckets() {
    for keys_max in [64, 2_000, 20_000] {
        let (limiter, mut subscription) = with_keys(keys_max, 7);
        for number in 0..3_000 {
            // Often enough that each name would get a place if there were one.
            for _ in 0..10 {
                let (bucket, tenant) = (format!("junk{number}"), format!("tenant{number}"));
                assert!(limiter.check(&Request::new(&*bucket, &tenant)).is_admit());
            }
            // The log of new names has room for some, and is emptied by each report.
            subscription.counts();
        }
        let declared = limiter
            .bucket("checkout")
            .expect("a declared bucket has room");
        limiter.table.publish(
            declared.place.default_key,
            DirectiveWord::new(DropRatio::ALL).enforced(true),
        );
        assert!(
            !limiter.check(&Request::new("checkout", "acme")).is_admit(),
            "protected with {keys_max} keys"
        );
        assert!(limiter.table.untracked() > 0, "the others are counted");
    }
}

#[test]
fn full_table_names_its_setting() {
    for (keys_max, buckets_max, setting, max) in
        [(1_000, 4, "buckets_max", 4), (3, 100, "keys_max", 3)]
    {
        let builder = Limiter::builder("shop")
            .keys_max(keys_max)
            .buckets_max(buckets_max);
        let (limiter, _feed) = builder.build_detached().unwrap();
        (0..max).for_each(|number| drop(limiter.bucket(&format!("b{number}")).unwrap()));
        let error = limiter.bucket("late").unwrap_err();
        let expected = BucketError::Full {
            bucket: "late".to_owned(),
            setting,
            max,
        };
        assert_eq!(error, expected);
        for part in ["`late`", &format!("LimiterBuilder::{setting} is {max}")] {
            assert!(error.to_string().contains(part), "{error}");
        }
        let problem = SetupProblem::BucketsFull {
            bucket: "late".to_owned(),
            setting,
            max,
        };
        assert!(
            limiter.setup_problems().contains(&problem),
            "{:?}",
            limiter.setup_problems()
        );
    }
}

#[test]
fn bucket_without_room_is_one_problem() {
    let (limiter, _feed) = Limiter::builder("shop")
        .buckets_max(4)
        .build_detached()
        .unwrap();
    (0..4).for_each(|number| drop(limiter.bucket(&format!("b{number}")).unwrap()));
    for name in ["late", "later", "bad name"] {
        assert!(limiter.check(&Request::new(name, "acme")).is_admit());
    }
    let full: Vec<String> = limiter
        .setup_problems()
        .iter()
        .filter(|problem| problem.kind() == "buckets_full")
        .map(|problem| problem.subject().to_owned())
        .collect();
    assert_eq!(full, ["late"]);
}

/// A service may log its state with `{:?}`: on the way of a request that would be a pause, and a leak.
#[test]
fn debug_output_hides_the_draw_key() {
    let (limiter, feed) = Limiter::builder("shop").build_detached().unwrap();
    let bucket = limiter.bucket("checkout").unwrap();
    let key = bucket.key("acme");
    let halves = 0x1234_5678_9abc_def0_u64;
    limiter
        .table
        .draw_key
        .store(plimsoll_core::decision::coherent::DrawKey::of_halves(
            halves, halves,
        ));
    for text in [
        format!("{limiter:?}"),
        format!("{bucket:?}"),
        format!("{key:?}"),
        format!("{feed:?}"),
    ] {
        assert!(text.len() < 20_000, "{} bytes: {text:.200}", text.len());
        assert!(!text.contains(&halves.to_string()), "{text}");
    }
    assert!(format!("{bucket:?}").contains("checkout"), "{bucket:?}");
}

#[test]
fn each_text_is_its_own_tenant() {
    let limiter = limiter();
    let bucket = limiter.bucket("checkout").unwrap();
    let long = "x".repeat(129);
    let texts = [
        "acme",
        "auth0|1a",
        "auth0|1b",
        "auth0%7C1a",
        "caf\u{e9}",
        &long,
        &(long.clone() + "x"),
    ];
    for (requests, text) in (1..).zip(texts) {
        for _ in 0..requests {
            let _ = limiter.check(&Request::new("checkout", text));
        }
    }
    for (requests, text) in (1..).zip(texts) {
        assert_eq!(counts(&bucket, text)[0], requests, "{text}");
    }
    assert_eq!(limiter.table.invalid_tenants(), 0);
}

#[test]
fn empty_tenants_are_counted_as_default() {
    let limiter = limiter();
    let bucket = limiter.bucket("checkout").unwrap();
    for (tenant, invalid) in [("acme", 0), ("", 1), ("two words", 1), ("", 2)] {
        let _ = limiter.check(&Request::new("checkout", tenant));
        assert_eq!(limiter.table.invalid_tenants(), invalid, "{tenant}");
    }
    assert_eq!(counts(&bucket, "default")[0], 2);
}
