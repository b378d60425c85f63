//! A seed determines the trace, with every kind of fault and on any number of threads.

use plimsoll_simulator::{Outcome, Run, Scenario, run, simulate};

use crate::parse;

/// Every feature: two buckets, shadow and enforcement, loss, faults of every kind, joins, retries,
/// on/off load.
const ALL: &str = "\
name: all
duration_s: 25
warmup_s: 5
zones: 3
clients: 12
network: { report_loss: 0.1, directive_loss: 0.1 }
policy:
  buckets:
    api: { limit: 300, mode: enforce }
    web: { limit: 200, mode: shadow }
tenants: { tenants: { default: { weight: 1.0 }, acme: { weight: 3.0 } } }
traffic:
  - { bucket: api, tenant: acme, load: { pareto: { mean_rps: 600, alpha: 1.5, on_s: 1, off_s: 2 } } }
  - bucket: api
    load: { sine: { mean_rps: 300, amplitude_rps: 200, period_s: 7 } }
    retry: { probability: 0.5, backoff_s: 0.5, jitter: 0.5 }
  - bucket: web
    load: { square: { high_rps: 800, low_rps: 10, on_s: 0.5, off_s: 0.5 } }
    clients: { share: [ { at_s: 3, first: 2, of_load: 0.8 } ] }
joins: [ { at_s: 6, clients: 6 } ]
faults:
  - { kind: controller_down, at_s: 7, until_s: 9 }
  - { kind: controller_down, at_s: 18, until_s: 22, keep_state: true }
  - { kind: zone_partition, zone: 1, at_s: 8, until_s: 13 }
  - { kind: zone_crash, zone: 0, at_s: 10, until_s: 11, reconnect_s: [0.1, 2] }
  - { kind: client_crash, client: 5, at_s: 4, until_s: 6 }
  - { kind: client_partition, client: 6, at_s: 12, until_s: 17 }
  - { kind: zone_dead, zone: 2, at_s: 20 }
";

fn check_same(a: &Run, b: &Run) {
    assert_eq!((a.seed, a.trace, a.totals()), (b.seed, b.trace, b.totals()));
    assert_eq!(a.rejections, b.rejections);
}

fn document(scenario: &Scenario, runs: &[Run]) -> String {
    serde_json::to_string(&Outcome::of(scenario, runs)).unwrap()
}

#[test]
fn equal_seeds_give_equal_runs() {
    let scenario = parse(ALL).unwrap();
    let (first, second) = (run(&scenario, 7), run(&scenario, 7));
    check_same(&first, &second);
    assert_eq!(
        document(&scenario, &[first]),
        document(&scenario, &[second])
    );
}

#[test]
fn different_seeds_give_different_runs() {
    let scenario = parse(ALL).unwrap();
    let runs = simulate(&scenario, 0..8, 1, &|_| {});
    let mut traces: Vec<u64> = runs.iter().map(|run| run.trace.get()).collect();
    traces.sort_unstable();
    traces.dedup();
    assert_eq!(traces.len(), 8);
}

#[test]
fn number_of_threads_changes_nothing() {
    let scenario = parse(ALL).unwrap();
    let (one, four) = (
        simulate(&scenario, 3..9, 1, &|_| {}),
        simulate(&scenario, 3..9, 4, &|_| {}),
    );
    assert_eq!(one.len(), 6);
    one.iter()
        .zip(&four)
        .for_each(|(one, four)| check_same(one, four));
    assert_eq!(document(&scenario, &one), document(&scenario, &four));
}

#[test]
fn every_fault_changes_the_trace() {
    let scenario = parse(ALL).unwrap();
    let whole = run(&scenario, 7).trace;
    for left_out in [
        "{ kind: controller_down, at_s: 7",
        "{ kind: zone_crash",
        "{ kind: client_partition",
    ] {
        let text: Vec<&str> = ALL
            .lines()
            .filter(|line| !line.contains(left_out))
            .collect();
        assert!(text.len() < ALL.lines().count(), "{left_out}");
        assert_ne!(
            run(&parse(&text.join("\n")).unwrap(), 7).trace,
            whole,
            "without {left_out}"
        );
    }
    let lossless = ALL.replace("report_loss: 0.1", "report_loss: 0");
    assert_ne!(run(&parse(&lossless).unwrap(), 7).trace, whole);
}
