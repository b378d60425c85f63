//! A decision allocates nothing, in every way to decide and with every outcome.
//!
//! The allocator of `allocation-counter` counts by thread, which excludes the feed's work.

use std::hint::black_box;

use allocation_counter::measure;
use plimsoll_client::{Limiter, Request as Asked, TraceId, Verdict};
use plimsoll_core::decision::Coin;
use plimsoll_core::decision::Mode;
use plimsoll_core::decision::coherent::{Coherence, CoinKey};
use plimsoll_core::directive::{Terms, Values};
use plimsoll_core::quantity::DropRatio;
use plimsoll_core::quantity::Rate;

use crate::parent::{ALL, Fleet};

const DECISIONS: usize = 1_000;
const HALF: u32 = DropRatio::ONE / 2;

/// Returns the allocations of this thread, and the refusals among [`DECISIONS`] decisions.
fn count(mut decide: impl FnMut(usize) -> Verdict) -> (u64, usize) {
    let mut refused = 0;
    let info = measure(|| {
        refused = (0..DECISIONS)
            .filter(|i| !black_box(decide(*i)).is_admit())
            .count()
    });
    (info.count_total, refused)
}

fn names(prefix: &str) -> Vec<String> {
    (0..DECISIONS).map(|i| format!("{prefix}-{i}")).collect()
}

/// Checks the refusals among [`DECISIONS`] against the ratio. At one half the bounds are 8 standard
/// deviations away.
fn check_refused(ratio: u32, refused: usize, how: &str) {
    let expected = match ratio {
        0 => 0..=0,
        ALL => DECISIONS..=DECISIONS,
        _ => DECISIONS * 3 / 8..=DECISIONS * 5 / 8,
    };
    assert!(
        expected.contains(&refused),
        "{refused} of {DECISIONS} refused at {ratio} {how}"
    );
}

/// Decides in every way with new names, on a new thread, including its first decision.
fn every_way(limiter: Limiter, case: &'static str, check: impl Fn(usize, &str) + Send + 'static) {
    let decide = move || {
        let bucket = limiter.bucket("b").unwrap();
        let key = bucket.key("acme");
        let case_name = case.replace(' ', "-");
        let (new, newer) = (
            names(&format!("by-handle-{case_name}")),
            names(&format!("by-name-{case_name}")),
        );
        let trace = |i: usize| TraceId::new(i as u128 + 1);
        let ask = |asked: Asked<'_>| limiter.check(&asked);
        let named = || Asked::new("b", "acme");
        let ways: [(&str, &dyn Fn(usize) -> Verdict); 10] = [
            ("by key", &|_| ask(key.request())),
            ("by bucket and known tenant", &|_| {
                ask(Asked::new(&bucket, "acme"))
            }),
            ("by bucket and new tenants", &|i| {
                ask(Asked::new(&bucket, &new[i]))
            }),
            ("by bucket and invalid tenant", &|_| {
                ask(Asked::new(&bucket, "no name"))
            }),
            ("by names", &|_| ask(named())),
            ("by names, new ones", &|i| ask(Asked::new("b", &newer[i]))),
            ("by key and trace", &|i| ask(key.request().trace(trace(i)))),
            ("by names and trace", &|i| ask(named().trace(trace(i)))),
            ("by several keys and trace", &|i| {
                limiter.check(&Asked::all(&[named(), named().cost(0)]).trace(trace(i)))
            }),
            ("without a cost", &|i| ask(named().cost(0).trace(trace(i)))),
        ];
        for (how, decide) in ways {
            let (allocations, refused) = count(decide);
            assert_eq!(allocations, 0, "{how}, {case}");
            check(refused, how);
        }
    };
    std::thread::spawn(decide).join().unwrap();
}

#[test]
fn allocation_counter_counts() {
    assert_eq!(measure(|| drop(black_box(Box::new(1)))).count_total, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_allocates_nothing() {
    let fleet = Fleet::start(&["b"]).await;
    for (coin, ratio, case) in [
        (Coin::Dithered, 0, "nothing to refuse"),
        (Coin::Dithered, HALF, "dithered"),
        (Coin::Coherent, HALF, "coherent"),
        (Coin::Dithered, ALL, "all refused"),
    ] {
        let coherence = Some(Coherence {
            key: CoinKey::from_bytes([7; 16]),
            salt: 1,
        });
        let terms = Terms {
            mode: Mode::Enforce,
            coin,
            coherence,
            ..Terms::default()
        };
        let values = Values {
            ratio: Some(DropRatio::new(ratio).unwrap()),
            ..Values::default()
        };
        fleet
            .direct_values("b", terms, &[("default", values)])
            .await;
        every_way(fleet.limiter.clone(), case, move |refused, how| {
            check_refused(ratio, refused, how)
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_with_a_guard_allocates_nothing() {
    let fleet = Fleet::start(&["b"]).await;
    for (per_second, case) in [
        (0.001, "a guard that refuses"),
        (1e9, "a guard that does not"),
    ] {
        let guard = Some(Rate::new(per_second).unwrap());
        let ratio = Some(DropRatio::NONE);
        let terms = Terms {
            mode: Mode::Enforce,
            clients: Some(1),
            ..Terms::default()
        };
        fleet
            .direct_values(
                "b",
                terms,
                &[(
                    "default",
                    Values {
                        guard,
                        ratio,
                        ..Values::default()
                    },
                )],
            )
            .await;
        every_way(fleet.limiter.clone(), case, move |refused, how| {
            // The guard's burst is 3 requests for all ways together.
            let expected = if per_second < 1.0 {
                DECISIONS - 4..=DECISIONS
            } else {
                0..=0
            };
            assert!(
                expected.contains(&refused),
                "{refused} of {DECISIONS} refused {how}, {case}"
            );
        });
    }
}

#[test]
fn decision_for_an_undeclared_bucket_allocates_nothing() {
    let (limiter, _feed) = plimsoll_client::Limiter::builder("shop")
        .build_detached()
        .unwrap();
    let buckets = names("bucket");
    let (allocations, refused) = count(|i| limiter.check(&Asked::new(&*buckets[i], "acme")));
    assert_eq!((allocations, refused), (0, 0));
}
