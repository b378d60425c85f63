//! Benchmark of one tick's division of all buckets' capacities between their tenants.
#![allow(missing_docs)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use plimsoll_core::law::fairness::{FillClaim, Waterfill};

const BUCKETS: usize = 10_000;
const TENANTS: usize = 100;
const CAPACITY: f64 = 10_000.0;
const OVERLOAD: f64 = 3.0;
const UNDERLOAD: f64 = 0.5;

fn allocation(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("1,000,000 keys");
    group
        .sample_size(40)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(4));
    let (mut waterfill, mut parts, mut rooms) = (Waterfill::default(), Vec::new(), Vec::new());
    for (name, load, floor) in [("no floors", OVERLOAD, 0.0), ("floors", OVERLOAD, 30.0)] {
        let fleet = fleet(load, floor);
        group.bench_function(format!("divide, overloaded, {name}"), |bencher| {
            bencher.iter(|| {
                for claims in &fleet {
                    waterfill.divide(CAPACITY, black_box(claims), &mut parts);
                    black_box(&parts);
                }
            });
        });
    }
    for (name, load) in [("overloaded", OVERLOAD), ("not overloaded", UNDERLOAD)] {
        let fleet = fleet(load, 0.0);
        group.bench_function(format!("divide and rooms, {name}"), |bencher| {
            bencher.iter(|| {
                for claims in &fleet {
                    waterfill.divide(CAPACITY, black_box(claims), &mut parts);
                    waterfill.rooms(CAPACITY, claims, &parts, &mut rooms);
                    black_box(&rooms);
                }
            });
        });
    }
    group.finish();
}

/// Buckets with random demands that sum to `load` times the capacity, and weights of 1, 1/2, 1/3
/// and so on, shuffled in each bucket.
fn fleet(load: f64, floor: f64) -> Vec<Vec<FillClaim>> {
    let mut state = 1;
    let mut claims = || {
        let mut claims: Vec<FillClaim> = (1..=TENANTS)
            .map(|rank| FillClaim {
                demand: draw(&mut state),
                weight: 1.0 / rank as f64,
                floor,
            })
            .collect();
        let sum: f64 = claims.iter().map(|claim| claim.demand).sum();
        claims
            .iter_mut()
            .for_each(|claim| claim.demand *= load * CAPACITY / sum);
        for last in (1..TENANTS).rev() {
            claims.swap(last, (draw(&mut state) * (last + 1) as f64) as usize);
        }
        claims
    };
    (0..BUCKETS).map(|_| claims()).collect()
}

fn draw(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

criterion_group!(benches, allocation);
criterion_main!(benches);
