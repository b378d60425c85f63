//! A decision allocates nothing, in every way to decide and with every outcome.
//!
//! The allocator of `allocation-counter` counts by thread, which excludes the feed's work.

use std::hint::black_box;
use std::ops::RangeInclusive;

use allocation_counter::measure;
use plimsoll_client::{Limiter, Request as Asked, TraceId, Verdict};
use plimsoll_core::decision::Coin;
use plimsoll_core::decision::Mode;
use plimsoll_core::decision::coherent::{Coherence, CoinKey};
use plimsoll_core::directive::{Terms, Values};
use plimsoll_core::quantity::DropRatio;
use plimsoll_core::quantity::Rate;

use crate::parent::{ALL, Fleet, at_ratio};

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

/// Decides in every way with new names, on a new thread, including its first decision.
fn every_way(limiter: Limiter, case: &'static str, refusals: RangeInclusive<usize>) {
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
            assert!(
                refusals.contains(&refused),
                "{refused} of {DECISIONS} refused {how}, {case}"
            );
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
    // At one half the bounds are 8 standard deviations away.
    let about_half = DECISIONS * 3 / 8..=DECISIONS * 5 / 8;
    for (case, coin, ratio, guard, refusals) in [
        ("nothing to refuse", Coin::Dithered, 0, None, 0..=0),
        ("dithered", Coin::Dithered, HALF, None, about_half.clone()),
        ("coherent", Coin::Coherent, HALF, None, about_half),
        (
            "all refused",
            Coin::Dithered,
            ALL,
            None,
            DECISIONS..=DECISIONS,
        ),
        // The guard's burst is 3 requests for all ways together.
        (
            "a guard that refuses",
            Coin::Dithered,
            0,
            Some(0.001),
            DECISIONS - 4..=DECISIONS,
        ),
        ("a guard that does not", Coin::Dithered, 0, Some(1e9), 0..=0),
    ] {
        let coherence = Some(Coherence {
            key: CoinKey::from_bytes([7; 16]),
            salt: 1,
        });
        let terms = Terms {
            mode: Mode::Enforce,
            coin,
            coherence,
            clients: Some(1),
            ..Terms::default()
        };
        let values = Values {
            guard: guard.map(|guard| Rate::new(guard).unwrap()),
            ..at_ratio(ratio)
        };
        fleet
            .direct_values("b", terms, &[("default", values)])
            .await;
        every_way(fleet.limiter.clone(), case, refusals);
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
