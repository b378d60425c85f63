//! The reference laws fail the expectations that they are known to fail, which proves that the checks can
//! fail.

use plimsoll_simulator::{BucketOutcome, Outcome, broken, simulate};

use crate::parse;

/// Runs a scenario under a reference law. Returns the bucket's figures and the names of those out of bounds.
fn judged(law: &str, policy: &str, traffic: &str, expect: &str) -> (BucketOutcome, Vec<String>) {
    let text = format!(
        "name: reference\nduration_s: 60\nwarmup_s: 10\nzones: 3\nclients: 99\nreference: {law}\n\
         policy: {{ buckets: {{ api: {policy} }} }}\n\
         tenants: {{ tenants: {{ default: {{}}, heavy: {{ weight: 4.0 }}, light: {{ weight: 0.25 }},\n\
         heavy-too: {{ weight: 4.0 }} }} }}\n\
         traffic: {traffic}\nexpect: {{ api: {expect} }}\n"
    );
    let scenario = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let runs = simulate(&scenario, 0..20, 2, &|_| {});
    let figures = broken(&scenario, &runs).into_iter().map(|broken| broken.figure).collect();
    (Outcome::of(&scenario, &runs).buckets["api"].clone(), figures)
}

const LIMIT: &str = "{ limit: 2000, mode: enforce }";

fn check_close(value: Option<f64>, expected: f64, tolerance: f64) {
    let value = value.unwrap();
    assert!((value - expected).abs() <= tolerance, "{value} instead of {expected}");
}

#[test]
fn memoryless_law_admits_eight_limits_at_a_step() {
    let step = "[ { bucket: api, load: { steps: [ { at_s: 0, rps: 1600 }, { at_s: 20, rps: 20000 } ] } } ]";
    let (figures, broken) = judged("memoryless", LIMIT, step, "{ worst_1s: [0, 1.65] }");
    check_close(figures.worst_1s, 8.0, 1.0);
    assert_eq!(broken, ["worst_1s"]);
}

#[test]
fn memoryless_law_admits_more_than_the_limit_of_on_off_traffic() {
    let square = "[ { bucket: api, load: { square: { high_rps: 20000, on_s: 1, off_s: 1 } } } ]";
    let (figures, broken) = judged("memoryless", LIMIT, square, "{ long_run_error: [-1, 0] }");
    assert!(figures.long_run_error.unwrap() > 1.0, "{:?}", figures.long_run_error);
    assert_eq!(broken, ["long_run_error"]);
}

#[test]
fn memoryless_law_holds_a_steady_load() {
    let steady = "[ { bucket: api, load: { constant: 20000 } } ]";
    let (_, broken) = judged("memoryless", LIMIT, steady, "{ mean_ratio: [0.98, 1.02] }");
    assert_eq!(broken, Vec::<String>::new());
}

#[test]
fn local_law_admits_six_limits_at_ten_times_the_load() {
    let steady = "[ { bucket: api, load: { constant: 20000 } } ]";
    let (figures, broken) = judged("local", LIMIT, steady, "{ long_run_error: [-0.005, 0.005] }");
    check_close(figures.mean_ratio, 6.0, 0.1);
    assert_eq!(broken, ["long_run_error"]);
}

#[test]
fn ratio_divided_by_weight_misses_the_limit_both_ways() {
    for (other, admitted) in [("light", 0.875), ("heavy-too", 1.75)] {
        let load = "load: { constant: 1000 }";
        let traffic = format!(
            "[ {{ bucket: api, tenant: heavy, {load} }}, {{ bucket: api, tenant: {other}, {load} }} ]"
        );
        let policy = "{ limit: 1000, mode: enforce }";
        let bounds = "{ mean_ratio: [0.95, 1.05], tenant_deviation: [-0.05, 0.05] }";
        let (figures, broken) = judged("textbook_weights", policy, &traffic, bounds);
        check_close(figures.mean_ratio, admitted, 0.03);
        assert!(broken.contains(&"mean_ratio".to_owned()), "{broken:?}");
        assert!(broken.iter().any(|figure| figure.ends_with(".deviation")), "{broken:?}");
    }
}

#[test]
fn limit_learned_without_history_denies_every_request() {
    let text = "[ { window_s: [0, 1.5], would_drop_ratio: [0, 0.05] } ]";
    let steady = "[ { bucket: api, load: { constant: 1000 } } ]";
    let (_, broken) = judged("textbook_p95", LIMIT, steady, text);
    assert_eq!(broken, ["would_drop_ratio"]);
}
