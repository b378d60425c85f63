//! Virtual seconds per real second, for 99 and for 10,000 clients at 100,000 requests/s. The target for 99
//! clients is 50 on one core.
#![allow(missing_docs, clippy::panic)] // a benchmark stops at the first error

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use plimsoll_policy::Source;
use plimsoll_simulator::{Scenario, run};

fn scenario(clients: u32) -> Scenario {
    let text = format!(
        "name: speed\nduration_s: 10\nzones: 3\nclients: {clients}\n\
         policy: {{ buckets: {{ api: {{ limit: 10000, mode: enforce }} }} }}\n\
         traffic: [ {{ bucket: api, load: {{ constant: 100000 }} }} ]\n"
    );
    let source = Source {
        name: "speed.yaml",
        text: &text,
    };
    let scenarios =
        Scenario::parse(source, Path::new("")).unwrap_or_else(|error| panic!("{error}"));
    scenarios
        .into_iter()
        .next()
        .unwrap_or_else(|| panic!("a scenario without variants is one"))
}

fn speed(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("simulated_seconds");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(10));
    for clients in [99, 10_000] {
        let scenario = scenario(clients);
        group.throughput(Throughput::Elements(scenario.duration().as_secs()));
        group.bench_function(format!("{clients}_clients"), |bencher| {
            bencher.iter(|| run(black_box(&scenario), 1).totals());
        });
    }
    group.finish();
}

criterion_group!(benches, speed);
criterion_main!(benches);
