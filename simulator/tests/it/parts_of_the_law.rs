//! Each part of the shared headroom is needed: a scenario that ships fails without it.

use std::path::Path;
use std::time::Duration;

use plimsoll_core::law::Parameters;
use plimsoll_simulator::{Scenario, broken, simulate};

/// The seeds, of scenarios with a small limit and few clients.
const SEEDS: u64 = 20;

/// Checks that a variant of a scenario fails under `law`, and does not under the law that ships.
fn check(file: &str, variant: &str, law: Parameters) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("scenarios/{file}.yaml"));
    let name = format!("{file}/{variant}");
    let all = Scenario::read(path).unwrap();
    let shipped = all.into_iter().find(|scenario| scenario.name() == name).unwrap();
    let unmet = |scenario: &Scenario| broken(scenario, &simulate(scenario, 0..SEEDS, 2, &|_| {}));
    assert_eq!(unmet(&shipped), []);
    let without = shipped.with_law(law);
    assert!(!unmet(&without).is_empty(), "{name} holds without it");
}

#[test]
fn groups_need_the_first_excess() {
    let law = Parameters { excess_requests: 0.0, ..Parameters::default() };
    check("25d-groups-30-random", "240-2", law);
    check("25d-groups-30-periodic", "240-20", law);
}

#[test]
fn groups_need_the_learned_depth() {
    let law = Parameters { pool_depth_requests: 0.0, pool_burst: Duration::ZERO, ..Parameters::default() };
    check("25d-groups-30-random", "240-2", law);
}
