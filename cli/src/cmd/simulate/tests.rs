//! The output and the exit codes of `simulate`.

use std::fs;

use clap::Parser;

use super::*;

const GOOD: &str = "\
name: tiny
duration_s: 4
warmup_s: 1
zones: 1
clients: 2
policy: { buckets: { api: { limit: 100, mode: enforce } } }
traffic: [ { bucket: api, load: { constant: 50 } } ]
expect: { api: { would_drop_ratio: [0, 0.2] } }
";

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: SimulateArgs,
}

/// Runs a scenario with these flags; returns the exit code, standard output and standard error.
fn simulated(scenario: &str, flags: &[&str]) -> (u8, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.yaml");
    fs::write(&path, scenario).unwrap();
    let line = ["simulate", path.to_str().unwrap(), "--seeds", "2"];
    let args = Line::try_parse_from(line.iter().chain(flags)).unwrap().args;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = simulate_all(&args, &mut out, &mut err).unwrap();
    (
        code,
        String::from_utf8(out).unwrap(),
        String::from_utf8(err).unwrap(),
    )
}

#[test]
fn met_expectations_exit_with_0() {
    let (code, out, err) = simulated(GOOD, &[]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.starts_with("tiny: 2 seeds, 8 s simulated"), "{out}");
    assert!(out.contains("limit 100 rps"), "{out}");
}

#[test]
fn unmet_expectation_exits_with_one() {
    let unmet = GOOD.replace("[0, 0.2]", "[0.5, 1]");
    let (code, _, err) = simulated(&unmet, &[]);
    assert_eq!(code, 1);
    assert!(
        err.starts_with("unmet: tiny: api: would_drop_ratio is "),
        "{err}"
    );
    assert!(err.contains("expected 0.5 to 1, from 1 s to 4 s"), "{err}");
}

#[test]
fn invalid_scenario_exits_with_two() {
    let (code, out, err) = simulated(&GOOD.replace("limit: 100", "limit: -5"), &[]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("tiny.yaml:6:36: buckets.api.limit"), "{err}");
    let (code, _, err) = simulated(&GOOD.replace("zones: 1", "zones: 0"), &[]);
    assert_eq!(code, 2);
    assert!(
        err.contains("tiny.yaml:4:8: zones: 0 is out of range"),
        "{err}"
    );
}

#[test]
fn json_has_exactly_the_documented_fields() {
    let (_, out, _) = simulated(GOOD, &["--output", "json"]);
    assert_eq!(out.lines().count(), 1);
    let document: serde_json::Value = serde_json::from_str(&out).unwrap();
    let fields = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    let mut names = fields(&document);
    names.sort();
    assert_eq!(
        names,
        [
            "buckets",
            "scenario",
            "seeds",
            "simulated_s",
            "trace_hash",
            "wall_s"
        ]
    );
    let mut names = fields(&document["buckets"]["api"]);
    names.sort();
    assert_eq!(
        names,
        [
            "admitted_rps",
            "conformance_burst_s",
            "error_60s",
            "goodput_lost",
            "limit_rps",
            "long_run_error",
            "lost",
            "mean_ratio",
            "offered_rps",
            "optimum_ratio",
            "p99_10s",
            "p99_1s",
            "settle_s",
            "tenants",
            "worst_10s",
            "worst_1s",
            "would_drop_ratio"
        ]
    );
    let mut names = fields(&document["buckets"]["api"]["tenants"]["default"]);
    names.sort();
    assert_eq!(
        names,
        [
            "admitted_rps",
            "deviation",
            "drop_ratio",
            "lost",
            "offered_rps",
            "own_limit",
            "share_rps"
        ]
    );
}

#[test]
fn plot_of_a_single_scenario_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.svg");
    let (code, ..) = simulated(GOOD, &["--plot", path.to_str().unwrap()]);
    assert_eq!(code, 0);
    let picture = fs::read_to_string(&path).unwrap();
    assert!(
        picture.starts_with("<svg") && picture.contains("tiny: api"),
        "{picture}"
    );
}
