//! Every scenario that ships meets the bounds it states, at the tick of half a second. Three seeds each, more
//! where seeds differ much, one where there is very much to simulate; all seeds and both ticks are for `cargo run --release -p plimsoll-simulator
//! --example accuracy`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plimsoll_simulator::{Scenario, broken, simulate};

const SEEDS: u64 = 3;
/// Scenarios of which one seed has to do.
const HEAVY: [&str; 3] = ["01-steady-100x", "14-controller-away-49-tenants", "20-"];
/// How many seeds those take that are near a bound and differ much from seed to seed.
const SEEDS_OF_SQUARES: u64 = 12;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn stem(path: &Path) -> &str {
    path.file_stem().unwrap().to_str().unwrap()
}

fn check(number: &str) {
    let prefix = format!("{number}-");
    let files: Vec<PathBuf> = files().into_iter().filter(|path| stem(path).starts_with(&prefix)).collect();
    assert!(!files.is_empty(), "no scenario is called {prefix}...");
    let mut faults = Vec::new();
    for path in files {
        let scenario = Scenario::read(&path).unwrap();
        let heavy = HEAVY.iter().any(|heavy| stem(&path).starts_with(heavy));
        let seeds = match stem(&path) {
            _ if heavy => 1,
            squares if squares.starts_with("06-") => SEEDS_OF_SQUARES,
            _ => SEEDS,
        };
        let runs = simulate(&scenario, 0..seeds, 1, &|_| {});
        let refusals: Vec<&String> = runs.iter().flat_map(|run| &run.refusals).collect();
        assert_eq!(refusals, Vec::<&String>::new(), "{}: streams were refused", scenario.name());
        faults.extend(broken(&scenario, &runs).iter().map(|broken| format!("{}: {broken}", scenario.name())));
    }
    assert!(faults.is_empty(), "{} bounds are broken:\n{}", faults.len(), faults.join("\n"));
}

macro_rules! numbers {
    ($($name:ident $number:literal)*) => {
        $(#[test] fn $name() { check($number); })*

        #[test]
        fn no_scenario_is_left_out() {
            let checked = BTreeSet::from([$($number.to_owned()),*]);
            let files = files();
            let there: BTreeSet<String> = files.iter().map(|path| stem(path)[..2].to_owned()).collect();
            assert_eq!(there, checked);
            for path in &files {
                let text = std::fs::read_to_string(path).unwrap();
                assert!(text.starts_with("# "), "{} does not say what it shows", path.display());
                assert_eq!(Scenario::read(path).unwrap().name(), stem(path));
                assert!(text.contains("\nexpect:\n"), "{} expects nothing", path.display());
            }
        }
    };
}

numbers! {
    steady_load_is_held_to_the_limit "01"
    a_step_up_is_cut_before_the_loop_has_seen_it "02"
    a_step_down_passes_again_within_seconds "03"
    a_ramp_is_followed "04"
    a_sine_is_followed "05"
    a_square_of_half_seconds_is_repaid "06"
    a_square_of_seconds_never_passes_more_than_the_limit "07"
    heavy_tails_are_carried "08"
    a_storm_of_retries_ends_with_its_cause "09"
    one_hot_client_gets_what_there_is "10"
    clients_that_join_are_let_in_slowly "11"
    a_cold_start_holds "12"
    loss_loses_nothing "13"
    the_controller_may_be_away "14"
    a_zone_may_be_cut_off "15"
    tenants_get_their_shares "16"
    shadow_and_canary_tell_the_truth "17"
    a_controller_may_start_empty "18"
    an_aggregator_may_be_replaced "19"
    fleets_of_other_shapes_hold "20"
    a_generous_guard_gets_narrow_again "21"
    small_limits_hold_over_longer_windows "22"
    aggregators_may_stand_below_others "23"
}
