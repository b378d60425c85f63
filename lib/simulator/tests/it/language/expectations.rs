//! Expectations are judged as written, and an unmet one is reported with bucket, figure, value and span.

use plimsoll_simulator::{Outcome, Scenario, broken, run, simulate};

use crate::{parse, parse_all};

/// A scenario at half the limit, where every request passes.
fn below(expect: &str) -> Scenario {
    let text = format!(
        "name: below\nduration_s: 10\nwarmup_s: 2\nzones: 1\nclients: 3\n\
         policy: {{ buckets: {{ api: {{ limit: 2000, mode: enforce }} }} }}\n\
         traffic: [ {{ bucket: api, load: {{ steps: [ {{ at_s: 0, rps: 500 }}, {{ at_s: 6, rps: 1000 }} ] }} }} ]\n\
         expect: {{ api: {expect} }}\n"
    );
    parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Returns the expectations that one run does not meet, as text.
fn figures(expect: &str) -> Vec<String> {
    let scenario = below(expect);
    broken(&scenario, &[run(&scenario, 1)])
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn met_expectations_are_not_reported() {
    for expect in [
        "{ would_drop_ratio: [0, 0.1], mean_ratio: [0.3, 0.5], offered_rps: [600, 900] }",
        "[ { window_s: [6, 10], mean_ratio: [0.45, 0.55] }, { window_s: [0, 6], mean_ratio: [0.2, 0.3] } ]",
        "{ v: true, goodput_lost: [0, 0.1] }",
        "{ tenants.default.drop_ratio: [0, 0.1], tenant_deviation: [-0.1, 0.1] }",
        "{ small_tenant_rps: 1e4, tenant_deviation: [5, 6], small_tenant_drop_ratio: [0, 0.1] }",
        "{ settle_s: [0, 0.6], settle_s.median: [0, 0.6] }",
        // A 95th percentile of one seed is not judged.
        "{ settle_s.p95: [100, 200] }",
    ] {
        assert_eq!(figures(expect), Vec::<String>::new(), "{expect}");
    }
}

#[test]
fn unmet_expectations_are_reported() {
    let broken = figures("{ mean_ratio: [0.9, 1.1], worst_1s: [0, 2] }");
    assert_eq!(broken.len(), 1, "{broken:?}");
    assert!(
        broken[0].starts_with("api: mean_ratio is 0.3"),
        "{broken:?}"
    );
    assert!(
        broken[0].ends_with("expected 0.9 to 1.1, from 2 s to 10 s"),
        "{broken:?}"
    );
    assert_eq!(
        figures("{ long_run_error: [-1, 1] }"),
        ["api: long_run_error has no value, expected -1 to 1, from 2 s to 10 s"]
    );
    assert!(figures("{ window_s: [1, 3], error_60s: [-1, 1] }")[0].ends_with("from 1 s to 3 s"));
    assert!(
        figures("{ tenant_deviation: [1, 2] }")[0]
            .starts_with("api: tenants.default.deviation is ")
    );
    let small = figures("{ small_tenant_rps: 1e4, small_tenant_drop_ratio: [0.5, 1] }");
    assert!(
        small[0].starts_with("api: tenants.default.drop_ratio is "),
        "{small:?}"
    );
}

#[test]
fn variants_have_their_own_expectations() {
    let text = "name: some\nduration_s: 5\nwarmup_s: 1\nzones: 3\nclients: 9\n\
                variants:\n  - { name: small, limit: 40, zones: 1, clients: 2 }\n\
                \x20 - { name: large, limit: 1000, expect: { api: { offered_rps: [0, 1] } } }\n\
                policy: { buckets: { api: { limit: 2 L, mode: enforce } } }\n\
                traffic: [ { bucket: api, load: { constant: 0.5 L } } ]\n\
                expect: { api: { offered_rps: [10, 30] } }\n";
    let all = parse_all(text).unwrap();
    let [small, large] = &all[..] else {
        panic!("{all:?}")
    };
    assert_eq!((small.name(), small.clients()), ("some/small", 2));
    assert_eq!((large.name(), large.clients()), ("some/large", 9));
    let runs = [run(large, 1)];
    let outcome = Outcome::of(large, &runs);
    assert_eq!(
        (outcome.scenario.as_str(), outcome.buckets["api"].limit_rps),
        ("some/large", Some(2_000.0))
    );
    assert!(
        broken(large, &runs)[0]
            .to_string()
            .starts_with("api: offered_rps is 4")
    );
    assert_eq!(broken(small, &[run(small, 1)]), []);
}

#[test]
fn only_admissible_requests_are_lost() {
    let text = "name: lost\nduration_s: 20\nwarmup_s: 10\nzones: 1\nclients: 2\n\
                policy: { buckets: { api: { limit: 100, mode: enforce } } }\n\
                traffic:\n\
                \x20 - { bucket: api, load: { constant: 200 } }\n\
                \x20 - { bucket: api, tenant: small, load: { constant: 5 } }\n\
                expect: { api: { lost: [0, 0.5], tenant_lost: [0.9, 1], tenant_drop_ratio: [0.9, 1] } }\n";
    let scenario = parse(text).unwrap();
    let runs = [run(&scenario, 1)];
    let outcome = &Outcome::of(&scenario, &runs).buckets["api"];
    let (lost, dropped) = (outcome.lost.unwrap(), outcome.would_drop_ratio.unwrap());
    // Half must be refused; a bucket in one place refuses as many, though not the same ones.
    assert!(
        (0.4..0.6).contains(&dropped) && (0.1..0.4).contains(&lost),
        "{dropped} {lost}"
    );
    let figures: Vec<String> = broken(&scenario, &runs)
        .into_iter()
        .map(|broken| broken.figure)
        .collect();
    let of = |figure: &str| ["default", "small"].map(|tenant| format!("tenants.{tenant}.{figure}"));
    assert_eq!(figures, [of("drop_ratio"), of("lost")].concat());
}

#[test]
fn stalled_callers_catch_up_immediately() {
    let text = "name: stall\nduration_s: 8\nzones: 1\nclients: 2\n\
                policy: { buckets: { api: { limit: 2000, mode: enforce } } }\n\
                traffic: [ { bucket: api, load: { constant: 1000 }, clients: { share: [ { at_s: 0, first: 1, of_load: 1.0 } ] } } ]\n\
                faults: [ { kind: client_stall, client: 0, at_s: 4, until_s: 5 } ]\n\
                expect:\n  api:\n    - { window_s: [4, 5], offered_rps: [0, 0] }\n\
                \x20   - { window_s: [5, 5.1], offered_rps: [10000, 12000] }\n\
                \x20   - { window_s: [5.2, 8], offered_rps: [950, 1050] }\n";
    let scenario = parse(text).unwrap();
    assert_eq!(broken(&scenario, &[run(&scenario, 1)]), []);
}

#[test]
fn percentile_is_judged_from_20_seeds_on() {
    let scenario = below("{ settle_s.p95: [100, 200] }");
    let runs = simulate(&scenario, 0..20, 2, &|_| {});
    assert_eq!(broken(&scenario, &runs[..19]), []);
    assert_eq!(broken(&scenario, &runs).len(), 1);
}

#[test]
fn tick_bounds_replace_general_ones() {
    let text = "name: ticks\nduration_s: 4\nzones: 1\nclients: 1\n\
                policy: { buckets: { api: { limit: 100, mode: enforce } } }\n\
                traffic: [ { bucket: api, load: { constant: 50 } } ]\n\
                expect: { api: { mean_ratio: [5, 6], would_drop_ratio: [0, 0.5] } }\n\
                expect_at_tick: { \"250\": { api: { mean_ratio: [0, 1] } } }\n";
    let scenario = parse(text).unwrap();
    assert_eq!(broken(&scenario, &[run(&scenario, 1)]).len(), 1);
    let quick = scenario.with_tick(std::time::Duration::from_millis(250));
    assert_eq!(broken(&quick, &[run(&quick, 1)]), []);
}

#[test]
fn seed_figures_are_medians_except_the_worst() {
    let scenario = below("{ mean_ratio: [0, 1] }");
    let runs = simulate(&scenario, 0..3, 1, &|_| {});
    let of = |runs: &[_]| Outcome::of(&scenario, runs).buckets["api"].clone();
    let alone: Vec<_> = runs.chunks(1).map(of).collect();
    let mut worst: Vec<f64> = alone.iter().map(|one| one.worst_1s.unwrap()).collect();
    let mut mean: Vec<f64> = alone.iter().map(|one| one.mean_ratio.unwrap()).collect();
    worst.sort_by(f64::total_cmp);
    mean.sort_by(f64::total_cmp);
    let all = of(&runs);
    assert_eq!(
        (all.worst_1s, all.mean_ratio),
        (Some(worst[2]), Some(mean[1]))
    );
}
