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
use plimsoll_core::rollout::Mode;

/// Tenants in the uniform case.
const TENANTS: usize = 10_000;

fn admit(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let Ok(runtime) = runtime else { return };
    let fleet = runtime.block_on(async {
        let fleet = Fleet::start(&["open", "half"]).await;
        fleet.direct("open", Mode::Enforce, &[("default", 0)]).await;
        fleet.direct("half", Mode::Enforce, &[("default", HALF)]).await;
        fleet
    });
    let limiter = &fleet.limiter;
    let (Ok(open), Ok(half)) = (limiter.bucket("open"), limiter.bucket("half")) else { return };
    let mut group = criterion.benchmark_group("admit");
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));

    let (open_key, half_key) = (open.key("acme"), half.key("acme"));
    group.bench_function("by key, ratio 0", |bencher| bencher.iter(|| black_box(&open_key).admit()));
    group.bench_function("by key, ratio 0.5", |bencher| bencher.iter(|| black_box(&half_key).admit()));
    beside_another_thread(&mut group, &half_key);
    group.bench_function("by bucket and tenant, one hot tenant", |bencher| {
        bencher.iter(|| half.admit(black_box("tenant_1234")));
    });
    let tenants: Vec<String> = (0..TENANTS - 10).map(|n| format!("tenant_{n:04}")).collect();
    tenants.iter().for_each(|tenant| drop(half.key(tenant)));
    let mut at = 0;
    group.bench_function("by bucket and tenant, 10k tenants evenly spread", |bencher| {
        bencher.iter(|| {
            at = (at + 7_919) % tenants.len();
            half.admit(black_box(&tenants[at]))
        });
    });
    group.bench_function("by names, one hot tenant", |bencher| {
        bencher.iter(|| limiter.admit(black_box("half"), black_box("tenant_1234")));
    });
    group.finish();
}

/// The same key decided by a second thread all the while.
fn beside_another_thread(group: &mut BenchmarkGroup<'_, WallTime>, key: &plimsoll_client::KeyHandle) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let _ = black_box(key).admit();
            }
        });
        let name = "by key, ratio 0.5, while a second thread uses the key";
        group.bench_function(name, |bencher| bencher.iter(|| black_box(key).admit()));
        over.store(true, Ordering::Relaxed);
    });
}

criterion_group!(benches, admit);
criterion_main!(benches);
