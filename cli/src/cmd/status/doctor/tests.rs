//! The checks of answers: of a leader, of the other tiers, of clocks and of limits.

use plimsoll_controller::admin::status::{AggregatorStatus, Problem, Status};
use plimsoll_controller::events::Severity;
use serde_json::json;

use super::checks::*;

fn lines(checks: &[Check]) -> Vec<String> {
    checks.iter().map(ToString::to_string).collect()
}

#[test]
fn problems_replace_what_is_well() {
    let aggregator = AggregatorStatus {
        connected: true,
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        ..AggregatorStatus::default()
    };
    let mut status = Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        epoch: 3,
        aggregators: vec![aggregator],
        ..Status::default()
    };
    let well = [
        "ok    c: answers, leads, epoch 3; your role is unknown".to_owned(),
        format!("ok    version of c: {}", env!("CARGO_PKG_VERSION")),
        "ok    aggregators: all are connected".to_owned(),
        "ok    policy: none is held back".to_owned(),
        "ok    state: saved".to_owned(),
        "ok    kill switch: the fleet is not killed".to_owned(),
        "ok    kill files: none".to_owned(),
        "ok    buckets: all in the policy".to_owned(),
    ];
    assert_eq!(lines(&of_status("c", &status)), well);
    let problem = |severity, subject: &str| Problem {
        severity,
        subject: subject.to_owned(),
        text: "why".to_owned(),
        remedy: "do".to_owned(),
    };
    status.problems = vec![
        problem(Severity::Critical, "state"),
        problem(Severity::Warning, "policy"),
    ];
    (status.killed, status.killed_locally) = (true, 2);
    status.aggregators[0].stale = true;
    status.aggregators[0].version = None;
    let ill = lines(&of_status("c", &status));
    assert_eq!(
        ill[2..5],
        [
            "warn  versions of other processes: unknown of aggregator /; remedy: update all to one version, \
             controllers first",
            "fail  state: why; remedy: do",
            "warn  policy: why; remedy: do"
        ]
    );
    assert_eq!(ill[5..], well[7..]);
}

#[test]
fn tiers_say_what_is_wrong() {
    let sidecar = |refused: Option<&str>, connected, local_kill| {
        let problems = json!([{ "problem": "no_tenant", "text": "x" }]);
        let limiter =
            json!({ "connected": connected, "local_kill": local_kill, "problems": problems });
        json!({ "rules": { "refused": refused }, "limiter": limiter })
    };
    let limit = "# x\nplimsoll_descriptors_limit 1024\n";
    let unmatched = "a{cause=\"no_rule\"} 3\nb{cause=\"no_rule\"} 4\n";
    let aggregator = |age: Option<f64>| json!({ "zone": "a", "upstream_age_s": age });
    for (status, metrics, expected) in [
        (
            aggregator(Some(0.5)),
            "",
            "ok    aggregator u of a: answers, and reaches its controller",
        ),
        (
            aggregator(Some(0.5)),
            "",
            "warn  version of u: unknown, of this command",
        ),
        (
            aggregator(None),
            "",
            "fail  aggregator u of a: its controller does not",
        ),
        (
            json!({ "epoch": 1 }),
            "",
            "fail  u: the admin port of another process; remedy: give",
        ),
        (
            aggregator(None),
            limit,
            "warn  open files of u: at most 1024",
        ),
        (
            sidecar(None, 0, false),
            "",
            "fail  sidecar u: no aggregator is connected",
        ),
        (
            sidecar(None, 1, false),
            unmatched,
            "warn  sidecar u: 7 requests matched no rule",
        ),
        (
            sidecar(None, 1, true),
            "",
            "warn  sidecar u: a kill file stops it",
        ),
        (
            sidecar(None, 1, false),
            "",
            "warn  sidecar u: x; remedy: docs/guides/running-a-service.md has `no_tenant`",
        ),
        (
            sidecar(Some("f:1: x\ny"), 1, false),
            "",
            "warn  sidecar u: the rules file is refused, the earlier rules are in use: f:1: x; r",
        ),
    ] {
        let lines = lines(&of_tier("u", &status, metrics));
        assert!(
            lines.iter().any(|line| line.starts_with(expected)),
            "{expected}: {lines:?}"
        );
    }
}

#[test]
fn clocks_and_limits_are_graded() {
    for (check, expected) in [
        (clock("a", -1.9), "ok    clock of a: as on this machine"),
        (
            clock("a", 2.0),
            "warn  clock of a: 2 s ahead of this machine; remedy: let NTP",
        ),
        (
            clock("a", -61.0),
            "fail  clock of a: 61 s behind this machine; remedy: let NTP",
        ),
        (
            descriptors("a", u64::MAX),
            "ok    open files of a: no limit",
        ),
        (
            descriptors("a", 4_095),
            "warn  open files of a: at most 4095, and",
        ),
    ] {
        let line = check.to_string();
        assert!(line.starts_with(expected), "{line}");
    }
}
