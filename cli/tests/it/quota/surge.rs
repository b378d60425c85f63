//! The exact layer under a surge: only requests that the coin admits reach the store.

use std::time::{Duration, Instant};

use plimsoll_testing::fleet::{BUCKET, Fleet, Rates, Sample, TENANTS, metric};
use plimsoll_testing::process::until_true;
use plimsoll_testing::turns::turn;

use super::server::Server;

const LIMIT: u32 = 100;
/// Load before the surge and during it, in requests/s.
const CALM: f64 = 60.0;
const SURGE: f64 = 10.0 * LIMIT as f64;
const SPAN: Duration = Duration::from_secs(20);

/// A limit, and a quota that no tenant uses up. Each request that the coin admits reaches the
/// store.
fn policy() -> String {
    format!(
        "quotas:\n  calls: {{ max: 100000000, every: 1h, lease: 1, on_store_error: deny }}\n\
         buckets:\n  {BUCKET}: {{ limit: {LIMIT}, mode: enforce, quotas: [calls] }}\n\
         rollout: {{ require_gates: false }}\nguardrails: off\n"
    )
}

/// Requests at the store, and decisions, at one moment.
struct Asked {
    operations: f64,
    sample: Sample,
}

fn asked(store: &Server, fleet: &Fleet) -> Asked {
    let page = store.process.metrics("admin");
    let operations = metric(&page, "plimsoll_quota_operations_total", "command=\"take\"");
    Asked {
        operations,
        sample: fleet.sample(),
    }
}

#[test]
fn surge_reaches_the_store_only_at_limit() {
    let _turn = turn(SURGE as u32);
    let store = Server::start();
    let url = format!("plimsoll://{}", store.address());
    let flags = ["--quota-store", &url, "--quota-timeout", "5s"];
    let mut fleet = Fleet::start_with(&policy(), TENANTS, &flags);
    fleet.start_patient_load(CALM);
    let calm = |rates: &Rates| rates.offered > 0.7 * CALM && rates.dropped == 0.0;
    fleet.until_rates("the calm before the surge", Duration::from_secs(5), calm);
    let begin = asked(&store, &fleet);
    assert!(
        begin.operations > 0.0,
        "the store is asked for each request"
    );

    fleet.start_patient_load(SURGE - CALM);
    let started = Instant::now();
    until_true("the end of the surge", || started.elapsed() >= SPAN);
    let end = asked(&store, &fleet);
    let rates = begin.sample.rates_until(&end.sample);
    let operations =
        (end.operations - begin.operations) / (end.sample.at - begin.sample.at).as_secs_f64();
    assert!(rates.offered > 0.5 * SURGE, "no surge: {rates:?}");
    assert!(
        operations < 1.1 * f64::from(LIMIT),
        "{operations} operations/s at the store: {rates:?}"
    );
    // Requests of a key that arrive during its operation at the store share the next operation.
    assert!(
        operations > 0.5 * rates.admitted,
        "{operations} operations/s at the store: {rates:?}"
    );
    for figures in fleet.stop_load() {
        assert_eq!(
            figures["failed"], 0,
            "every request was answered: {figures}"
        );
    }
}
