//! Every scenario in the repository meets its expectations at a tick of half a second: with three
//! seeds, more if the seeds of a scenario differ much, and one for the longest and most expensive
//! scenarios.
//! `cargo run --release -p plimsoll-simulator --example accuracy` runs all seeds at both ticks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_simulator::{Scenario, broken, simulate};

const SEEDS: u64 = 3;
/// Expensive scenarios, which run with one seed.
const HEAVY: [&str; 3] = ["01-steady-100x", "20-", "28-"];
/// Length of a run whose figures average as many requests as the seeds of a short one.
const LONG: Duration = Duration::from_secs(180);
/// Seeds of scenarios that are near a bound and differ much from seed to seed.
const SEEDS_OF_SQUARES: u64 = 12;
/// Seeds of scenarios with a judged first second.
const SEEDS_OF_SURGES: u64 = 5;
/// Seeds of rare refusals, at the small limits where seeds differ most.
const SEEDS_OF_RARE_REFUSALS: u64 = 20;
/// Seeds of variants with two clients.
const SEEDS_OF_PAIRS: u64 = 10;
/// Seeds of floods of invented names.
const SEEDS_OF_NAMES: u64 = 3;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

fn stem(path: &Path) -> &str {
    path.file_stem().unwrap().to_str().unwrap()
}

/// Returns the number of a scenario, such as `01` or `25a`.
fn number_of(path: &Path) -> &str {
    stem(path).split('-').next().unwrap()
}

fn check(number: &str) {
    let files: Vec<PathBuf> = files()
        .into_iter()
        .filter(|path| number_of(path) == number)
        .collect();
    assert!(!files.is_empty(), "no scenario is called {number}-...");
    let mut faults = Vec::new();
    for scenario in files.iter().flat_map(|path| Scenario::read(path).unwrap()) {
        let name = scenario.name();
        let seeds = match name {
            _ if HEAVY.iter().any(|heavy| name.starts_with(heavy)) => 1,
            squares if squares.starts_with("06-") => SEEDS_OF_SQUARES,
            // One second of a small tenant has few requests.
            surges if surges.starts_with("25g-") => SEEDS_OF_SURGES,
            names if names.starts_with("27-") => SEEDS_OF_NAMES,
            // Each seed of 99 clients costs as much as five of 20.
            groups if groups.starts_with("25d-groups-30") && groups.ends_with("/240-99") => {
                SEEDS_OF_SURGES
            }
            rare if rare.starts_with("25d-groups-30") && rare.contains("/240-") => {
                SEEDS_OF_RARE_REFUSALS
            }
            rare if rare.starts_with("26-after-a-surge-50") => SEEDS_OF_RARE_REFUSALS,
            // Variants with few clients differ most and cost least.
            large if large.contains('/') && large.ends_with("-99") => 1,
            busy if busy.starts_with("26-after-a-surge-10000") => SEEDS,
            small if small.contains('/') && small.ends_with("-2") => SEEDS_OF_PAIRS,
            _ if scenario.duration() >= LONG => 1,
            _ => SEEDS,
        };
        let runs = simulate(&scenario, 0..seeds, 1, &|_| {});
        let rejections: Vec<&String> = runs.iter().flat_map(|run| &run.rejections).collect();
        assert_eq!(
            rejections,
            Vec::<&String>::new(),
            "{name}: streams were rejected"
        );
        faults.extend(
            broken(&scenario, &runs)
                .iter()
                .map(|broken| format!("{name}: {broken}")),
        );
    }
    assert!(
        faults.is_empty(),
        "{} bounds are broken:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

macro_rules! numbers {
    ($($name:ident $number:literal)*) => {
        $(#[test] fn $name() { check($number); })*

        #[test]
        fn every_scenario_is_checked() {
            let checked = BTreeSet::from([$($number.to_owned()),*]);
            let files = files();
            let there: BTreeSet<String> = files.iter().map(|path| number_of(path).to_owned()).collect();
            assert_eq!(there, checked);
            for path in &files {
                let text = std::fs::read_to_string(path).unwrap();
                assert!(text.starts_with("# "), "{} has no description", path.display());
                for scenario in Scenario::read(path).unwrap() {
                    assert_eq!(scenario.name().split('/').next(), Some(stem(path)));
                }
                assert!(text.contains("\nexpect:\n"), "{} has no expectations", path.display());
            }
        }
    };
}

numbers! {
    steady_load_is_held_to_the_limit "01"
    step_up_is_cut_by_the_guards "02"
    step_down_passes_again_within_seconds "03"
    ramp_is_followed "04"
    sine_is_followed "05"
    square_of_half_seconds_is_repaid "06"
    square_of_seconds_never_exceeds_the_limit "07"
    heavy_tailed_load_is_held_to_the_limit "08"
    retry_storm_ends_with_its_cause "09"
    one_hot_client_gets_the_whole_limit "10"
    joining_clients_start_within_the_limit "11"
    cold_start_is_held_to_the_limit "12"
    lost_messages_lose_no_counts "13"
    controller_outage_is_bridged_by_holds "14"
    partitioned_zone_is_held_and_then_released "15"
    tenants_get_their_shares "16"
    shadow_and_canary_predict_enforcement "17"
    controller_restarts_without_its_counts "18"
    aggregator_is_replaced "19"
    fleets_of_other_shapes_are_held_to_the_limit "20"
    generous_guard_gets_narrow_again "21"
    small_limits_hold_over_longer_windows "22"
    stacked_aggregators_are_held_to_the_limit "23"
    steady_load_below_the_limit_is_admitted "25a"
    heavy_tailed_load_below_the_limit_is_admitted "25b"
    tenant_that_grows_within_the_limit_is_admitted "25c"
    groups_that_fit_are_admitted "25d"
    joining_and_stalling_callers_are_admitted "25e"
    busy_load_after_a_quiet_minute_is_admitted "25f"
    surge_of_one_tenant_spares_the_others "25g"
    load_below_the_limit_is_admitted_without_a_controller "25h"
    tenant_above_its_own_limit_spares_the_others "25i"
    tenant_recovers_within_a_second_after_a_surge "26"
    invented_names_cost_known_tenants_at_most_half "27"
    names_get_equal_parts "28"
    frozen_processes_blame_no_others "29"
}
