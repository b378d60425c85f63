//! What one decision costs, with directives that came over a real stream.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)] // it measures or it stops

#[allow(dead_code)]
#[path = "../tests/it/parent.rs"]
mod parent;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime};
use parent::{Fleet, HALF};
use plimsoll_client::KeyHandle;
use plimsoll_core::directive::{Terms, Values};
use plimsoll_core::policy::Coin;
use plimsoll_core::rate::Rate;
use plimsoll_core::ratio::DropRatio;
use plimsoll_core::rollout::Mode;

/// Tenants in the uniform case.
const TENANTS: usize = 10_000;

/// What the buckets of the measurements are directed.
const BUCKETS: [(&str, u32, Coin, bool); 4] = [
    ("open", 0, Coin::Dithered, false),
    ("independent", HALF, Coin::Independent, false),
    ("dithered", HALF, Coin::Dithered, false),
    ("guarded", HALF, Coin::Dithered, true),
];

async fn direct(fleet: &Fleet) {
    for (bucket, units, coin, guarded) in BUCKETS {
        let terms = Terms { mode: Mode::Enforce, coin, clients: Some(1), ..Terms::default() };
        // More than any thread can ask for: what is measured is a guard that lets pass.
        let guard = guarded.then(|| Rate::new(1e12).unwrap());
        let ratio = Some(DropRatio::new(units).unwrap());
        fleet
            .direct_values(bucket, terms, &[("default", Values { ratio, guard, ..Values::default() })])
            .await;
    }
}

fn admit(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let Ok(runtime) = runtime else { return };
    let fleet = runtime.block_on(async {
        let fleet = Fleet::start(&BUCKETS.map(|(bucket, ..)| bucket)).await;
        direct(&fleet).await;
        fleet
    });
    let limiter = &fleet.limiter;
    let mut group = criterion.benchmark_group("admit");
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));

    for (name, ..) in BUCKETS {
        let key = limiter.bucket(name).unwrap().key("acme");
        group.bench_function(format!("by key, {name}"), |bencher| bencher.iter(|| black_box(&key).admit()));
    }
    for name in ["independent", "guarded"] {
        beside_another_thread(&mut group, name, &limiter.bucket(name).unwrap().key("acme"));
    }
    let tenants: Vec<String> = (0..TENANTS - 10).map(|n| format!("tenant_{n:04}")).collect();
    for name in ["independent", "guarded"] {
        let bucket = limiter.bucket(name).unwrap();
        group.bench_function(format!("by bucket and tenant, {name}, one hot tenant"), |bencher| {
            bencher.iter(|| bucket.admit(black_box("tenant_1234")));
        });
        tenants.iter().for_each(|tenant| drop(bucket.key(tenant)));
        let mut at = 0;
        let evenly = format!("by bucket and tenant, {name}, 10k tenants evenly spread");
        group.bench_function(evenly, |bencher| {
            bencher.iter(|| {
                at = (at + 7_919) % tenants.len();
                bucket.admit(black_box(&tenants[at]))
            });
        });
    }
    group.bench_function("by names, guarded, one hot tenant", |bencher| {
        bencher.iter(|| limiter.admit(black_box("guarded"), black_box("tenant_1234")));
    });
    group.finish();
}

/// The same key decided by a second thread all the while.
fn beside_another_thread(group: &mut BenchmarkGroup<'_, WallTime>, bucket: &str, key: &KeyHandle) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let _ = black_box(key).admit();
            }
        });
        let name = format!("by key, {bucket}, while a second thread uses the key");
        group.bench_function(name, |bencher| bencher.iter(|| black_box(key).admit()));
        over.store(true, Ordering::Relaxed);
    });
}

criterion_group!(benches, admit);
criterion_main!(benches);
