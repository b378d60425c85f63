//! The scripts of a scenario beyond loads and faults have their effects: changes of the policy,
//! costs, callers that wait, clocks of another pace, zones, and names.

mod determinism;
mod expectations;
mod invalid_scenarios;

use plimsoll_simulator::{BucketOutcome, Outcome, broken, run};

use crate::parse;

/// Runs a minute with a limit of 1,000 and this traffic, and checks the expectations.
fn check(traffic: &str, rest: &str, expect: &str) -> BucketOutcome {
    let text = format!(
        "name: some\nduration_s: 60\nzones: 2\nclients: 4\n\
         policy: {{ buckets: {{ api: {{ limit: 1000, mode: enforce }} }} }}\n\
         tenants: {{ fairness: {{ reweight_interval_s: 1 }}, tenants: {{ default: {{ weight: 1 }}, gold: {{ weight: 1 }} }} }}\n\
         traffic: {traffic}\n{rest}\nexpect: {{ api: {expect} }}\n"
    );
    let scenario = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let runs = [run(&scenario, 1)];
    let broken: Vec<String> = broken(&scenario, &runs)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(broken, Vec::<String>::new(), "{text}");
    Outcome::of(&scenario, &runs).buckets["api"].clone()
}

const FLOOD: &str = "[ { bucket: api, load: { constant: 3000 } } ]";

#[test]
fn changed_policy_starts_at_its_time() {
    check(
        FLOOD,
        "changes: [ { at_s: 30, bucket: api, limit: 400 } ]",
        "[ { window_s: [10, 30], admitted_rps: [980, 1020] }, \
           { window_s: [40, 60], admitted_rps: [390, 410], mean_ratio: [0.97, 1.03], optimum_ratio: [0.97, 1.03] } ]",
    );
    let two = "[ { bucket: api, load: { constant: 3000 } }, { bucket: api, tenant: gold, load: { constant: 3000 } } ]";
    check(
        two,
        "changes: [ { at_s: 30, tenant: gold, weight: 3 } ]",
        "[ { window_s: [10, 30], tenants.gold.admitted_rps: [480, 520] }, \
           { window_s: [45, 60], tenants.gold.admitted_rps: [720, 780], tenants.gold.deviation: [-0.05, 0.05] } ]",
    );
    // A controller that restarts reads the changed policy.
    check(
        FLOOD,
        "changes: [ { at_s: 30, bucket: api, limit: 400 } ]\n\
         faults: [ { kind: controller_down, at_s: 29, until_s: 31 } ]",
        "{ window_s: [45, 60], admitted_rps: [385, 415] }",
    );
}

#[test]
fn cost_counts_in_limit_and_figures() {
    check(
        "[ { bucket: api, cost: 5, load: { constant: 600 } } ]",
        "",
        "{ window_s: [10, 60], offered_rps: [2900, 3100], admitted_rps: [970, 1030] }",
    );
}

#[test]
fn callers_wait_and_give_up() {
    // Four clients with 10 callers. Each caller can send five requests a second.
    check(
        "[ { bucket: api, callers: { in_flight: 10, latency_s: 0.2 }, load: { constant: 3000 } } ]",
        "",
        "{ window_s: [10, 60], offered_rps: [180, 201], would_drop_ratio: [0, 0] }",
    );
    // Two thirds of 3,000 are refused, and three attempts of each of x offer 3,000 in all.
    check(
        "[ { bucket: api, retry: { probability: 1, backoff_s: 0.5, attempts: 3 }, load: { constant: 3000 } } ]",
        "",
        "{ window_s: [10, 60], offered_rps: [7900, 8200], admitted_rps: [980, 1020] }",
    );
}

#[test]
fn clocks_of_other_paces_hold_the_limit() {
    check(
        FLOOD,
        "pace: { controller: 0.99, zones: [1.01, 0.99], clients: [1.01, 1, 0.99] }",
        "{ window_s: [10, 60], mean_ratio: [0.98, 1.02] }",
    );
    // A zone with a fast clock measures too low a rate.
    check(
        FLOOD,
        "pace: { zones: [2, 2] }",
        "{ window_s: [10, 60], mean_ratio: [1.5, 2.1] }",
    );
}

#[test]
fn names_are_judged_by_what_they_offered() {
    let outcome = check(
        "[ { bucket: api, tenant: few, zones: [1], names: { count: 20 }, load: { constant: 400 } }, \
           { bucket: api, tenant: many, names: { count: 100, zipf: 1 }, load: { constant: 400 } }, \
           { bucket: api, tenant: new, names: { once: true }, load: { constant: 100 } } ]",
        "",
        "{ window_s: [10, 60], names.min: [0.97, 1], names.few.mean: [0.99, 1], names.beyond: [0, 0] }",
    );
    let names = outcome.names.expect("names are counted");
    assert_eq!(names.tenants.keys().collect::<Vec<_>>(), ["few", "many"]);
    // One name among 50 offers half of an overload.
    let outcome = check(
        "[ { bucket: api, tenant: hog, load: { constant: 1500 } }, \
           { bucket: api, tenant: user, names: { count: 50 }, load: { constant: 500 } } ]",
        "",
        "{ window_s: [10, 60], names.mean: [0.9, 1.1] }",
    );
    assert_eq!(outcome.names.expect("names are counted").tenants.len(), 1);
}
