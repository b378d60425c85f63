//! An invalid scenario is rejected with place, field, reason and hint.

use plimsoll_policy::SourcePlace;
use plimsoll_simulator::ScenarioError;

use crate::parse;

/// A valid scenario; each test replaces one text in it.
const GOOD: &str = "\
name: good
duration_s: 30
warmup_s: 5
zones: 3
clients: 9
network: { client_delay_ms: 1, report_loss: 0.1 }
policy: { buckets: { api: { limit: 1000, mode: enforce } } }
tenants: { tenants: { default: { weight: 1.0 } } }
traffic:
  - bucket: api
    load: { steps: [ { at_s: 0, rps: 500 }, { at_s: 10, rps: 5000 } ] }
    clients: { share: [ { at_s: 5, first: 3, of_load: 0.5 } ] }
    retry: { probability: 0.5, backoff_s: 1, jitter: 0.5 }
joins: [ { at_s: 10, clients: 3 } ]
faults:
  - { kind: zone_crash, zone: 1, at_s: 5, until_s: 6, reconnect_s: [0.5, 2] }
  - { kind: controller_down, at_s: 10, until_s: 12, keep_state: true }
expect: { api: { worst_1s: [0, 2] } }
";

/// Checks that the scenario with `from` replaced by `to` is rejected at the place of `at`, for the
/// field `path`, with these words in the message or the hint.
fn check(from: &str, to: &str, at: &str, path: &str, words: &str) {
    assert!(GOOD.contains(from), "{from}");
    let text = GOOD.replacen(from, to, 1);
    let before = &text[..text
        .find(at)
        .unwrap_or_else(|| panic!("{at} is not in\n{text}"))];
    let line = before.lines().count().max(1) + usize::from(before.ends_with('\n'));
    let column = before.rsplit('\n').next().map_or(0, str::len) + 1;
    let error = parse(&text).expect_err(to);
    let ScenarioError::Invalid(error) = error else {
        panic!("{to}: {error}")
    };
    let fault = &error.faults()[0];
    assert_eq!(
        (fault.file.as_str(), fault.path.as_str()),
        ("test.yaml", path),
        "{to}: {fault}"
    );
    assert_eq!(fault.place, SourcePlace { line, column }, "{to}: {fault}");
    let text = format!("{} / {}", fault.message, fault.hint);
    assert!(
        text.contains(words) && !fault.hint.is_empty(),
        "{to}: {text}"
    );
}

/// Returns the rows of a table with cells between ` | `, where `\n` stands for the end of a line.
fn rows<const N: usize>(table: &str) -> impl Iterator<Item = [String; N]> {
    let lines = table.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| {
        let cells = line.split(" | ").map(|cell| cell.replace("\\n", "\n"));
        let cells: Vec<String> = cells.collect();
        cells
            .try_into()
            .unwrap_or_else(|_| panic!("a row has {N} cells: {line}"))
    })
}

#[test]
fn valid_scenario_is_accepted() {
    let scenario = parse(GOOD).unwrap();
    assert_eq!(
        (
            scenario.name(),
            scenario.clients(),
            scenario.duration().as_secs()
        ),
        ("good", 12, 30)
    );
}

#[test]
fn wrong_keys_and_types_are_rejected() {
    let table = r"
        clients: 9 | clints: 9 | clints | clints | did you mean `clients`
        zones: 3\n |  | name: good | zones | missing
        zones: 3 | zones: three | three | zones | invalid u32
        { kind: zone_crash | { kind: zone_crsh | zone_crsh | faults.0.kind | did you mean `zone_crash`
        { steps: [ | { stepps: [ | { stepps | traffic.0.load | did you mean `steps`
        first: 3, | first: 3, last: 4, | last | traffic.0.clients.share.0.last | unknown field
        zones: 3 | zones: 3\nzones: 4 | zones: 4 | zones | duplicate
        name: good | name: &a good | &a | name | anchors
    ";
    for [from, to, at, path, words] in rows(table) {
        check(&from, &to, &at, &path, &words);
    }
}

#[test]
fn numbers_out_of_range_are_rejected() {
    let table = r"
        duration_s: 30 | duration_s: 86401 | 86401 | duration_s | from 0.1 to 86400
        duration_s: 30 | duration_s: .nan | .nan | duration_s | not a number
        warmup_s: 5 | warmup_s: 30 | 30\nzones | warmup_s | out of range
        clients: 9 | clients: 100001 | 100001 | clients | from 1 to 100000
        report_loss: 0.1 | report_loss: 1.1 | 1.1 | network.report_loss | from 0 to 0.95
        rps: 500 } | rps: -500 } | -500 | traffic.0.load.steps.0.rps | -500 is out of range
        at_s: 10, rps | at_s: 0, rps | 0, rps: 5000 | traffic.0.load.steps.1.at_s | not later
        bucket: api | bucket: api\n    plan: a b | a b | traffic.0.plan | letters, digits
        bucket: api | bucket: api\n    names: 0 | 0\n    load | traffic.0.names | from 1 to 10000000
        first: 3 | first: 13 | 13, | traffic.0.clients.share.0.first | there are 12 clients
        first: 3 | first: 12 | 0.5 } ] | traffic.0.clients.share.0.of_load | no clients are left
        probability: 0.5 | probability: 1.5 | 1.5 | traffic.0.retry.probability | from 0 to 1
        at_s: 10, clients | at_s: 31, clients | 31 | joins.0.at_s | from 0 to 30
        clients: 3 } ] | clients: 99991 }, { at_s: 11, clients: 1 } ] | { at_s: 11 | joins.1 | all 100000 clients
    ";
    for [from, to, at, path, words] in rows(table) {
        check(&from, &to, &at, &path, &words);
    }
}

#[test]
fn faults_need_a_valid_target_and_time() {
    let table = r"
        zone: 1 | zone: 3 | 3, at_s: 5, until | faults.0.zone | from 0 to 2
        zone: 1,  |  | { kind: zone | faults.0.zone | `zone` is missing
        zone: 1,  | zone: 1, client: 2,  | client: 2 | faults.0.client | has no effect here
        at_s: 5, until | at_s: 50, until | 50, until | faults.0.at_s | from 0 to 30
        until_s: 6 | until_s: 4 | 4, reconnect | faults.0.until_s | from 5
        , until_s: 6 |  | { kind: zone | faults.0.until_s | missing
        [0.5, 2] | [2, 0.5] | [2, 0.5] | faults.0.reconnect_s | from, to
        kind: zone_crash | kind: zone_dead | until_s | faults.0.until_s | has no effect here
        kind: zone_crash | kind: zone_pause | reconnect_s | faults.0.reconnect_s | has no effect here
    ";
    for [from, to, at, path, words] in rows(table) {
        check(&from, &to, &at, &path, &words);
    }
}

#[test]
fn faulty_variants_are_rejected_with_their_place() {
    let with = |variants: &str| format!("zones: 3\nvariants: [ {variants} ]");
    check(
        "zones: 3",
        &with(""),
        "[  ]",
        "variants",
        "there are 1 to 100",
    );
    let table = r"
        { name: a } | { name: a | variants.0.limit | missing
        { name: a, limit: 0 } | 0 } | variants.0.limit | out of range
        { name: ' ', limit: 9 } | ' ' | variants.0.name | empty name
        { name: a, limit: 9, clints: 2 } | clints | variants.0.clints | did you mean `clients`
        { name: a, limit: 9, clients: 0 } | 0 } | variants.0.clients | from 1 to 100000
        { name: a, limit: 9, expect: { apy: {} } } | apy | variants.0.expect.apy | buckets with traffic
        { name: a, limit: 9 }, { name: a, limit: 8 } | a, limit: 8 | variants.1.name | another variant
    ";
    for [variants, at, path, words] in rows(table) {
        check("zones: 3", &with(&variants), &at, &path, &words);
    }
}

#[test]
fn limit_multiple_needs_variants() {
    check("limit: 1000", "limit: 1 L", "1 L", "buckets.api.limit", "");
}

#[test]
fn faulty_groups_and_stalls_are_rejected() {
    let table = r"
        retry: | groups: { of: 0 }\n    retry: | 0 }\n | traffic.0.groups.of | from 1 to 10000
        retry: | groups: { size: 5 }\n    retry: | size | traffic.0.groups.size | `of`
        kind: zone_crash, zone: 1 | kind: client_stall | { kind: client | faults.0.client | missing
    ";
    for [from, to, at, path, words] in rows(table) {
        check(&from, &to, &at, &path, &words);
    }
    let pareto = "{ pareto: { mean_rps: 9, alpha: 2, on_s: 1, off_s: 1, per: zone } }";
    let steps = "{ steps: [ { at_s: 0, rps: 500 }, { at_s: 10, rps: 5000 } ] }";
    check(
        steps,
        pareto,
        "{ pareto",
        "traffic.0.load.per",
        "`client`, `tenant`",
    );
}

#[test]
fn unknown_buckets_figures_and_files_are_rejected() {
    let table = r"
        - bucket: api | - bucket: apy | apy | traffic.0.bucket | the policy has: api
        expect: { api: | expect: { apy: | apy | expect.apy | buckets with traffic: api
        worst_1s | wurst_1s | wurst | expect.api.wurst_1s | worst_1s
        [0, 2] | [2, 0] | [2, 0] | expect.api.worst_1s | no value can be within
        [0, 2] | [0] | [0] | expect.api.worst_1s | two numbers
    ";
    for [from, to, at, path, words] in rows(table) {
        check(&from, &to, &at, &path, &words);
    }
    check(
        "worst_1s",
        "tenants.acme.deviation",
        "tenants.acme",
        "expect.api.\"tenants.acme.deviation\"",
        "",
    );
    let unknown = "expect_at_tick: { quick: { api: { worst_1s: [0, 2] } } }\nexpect";
    check(
        "expect",
        unknown,
        "quick",
        "expect_at_tick.quick",
        "not a tick",
    );
    let load = "{ steps: [ { at_s: 0, rps: 500 }, { at_s: 10, rps: 5000 } ] }";
    let trace = "{ trace: { csv: nowhere.csv } }";
    check(
        load,
        trace,
        "nowhere",
        "traffic.0.load.trace.csv",
        "nowhere.csv",
    );
}

#[test]
fn policy_mistake_is_reported_in_place() {
    check("limit: 1000", "limit: -1", "-1", "buckets.api.limit", "");
    check(
        "weight: 1.0",
        "weight: 0",
        "0 } } }",
        "tenants.default.weight",
        "",
    );
    check(
        "mode: enforce",
        "mod: enforce",
        "mod:",
        "buckets.api.mod",
        "did you mean `mode`",
    );
    let policy = "policy: { buckets: { api: { limit: 1000, mode: enforce } } }\n";
    check(policy, "", "name: good", "policy", "policy_file");
    let twice = format!("{policy}policy_file: policy.yaml\n");
    check(policy, &twice, "policy_file", "policy_file", "keep one of");
}

#[test]
fn unreadable_file_is_named() {
    let text = GOOD.replace(
        "policy: { buckets: { api: { limit: 1000, mode: enforce } } }",
        "policy_file: nowhere.yaml",
    );
    let error = parse(&text).expect_err("there is no such file");
    assert!(
        matches!(error, ScenarioError::Io { .. }) && error.to_string().contains("nowhere.yaml"),
        "{error}"
    );
}

#[test]
fn invalid_trace_row_names_its_line() {
    let folder = std::env::temp_dir().join(format!("plimsoll-traces-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let load = "{ steps: [ { at_s: 0, rps: 500 }, { at_s: 10, rps: 5000 } ] }";
    let text = GOOD.replace(load, "{ trace: { csv: own.csv } }");
    for (rows, words) in [
        ("t_s,rps\n0,100\n60,200\n", None),
        ("t_s, rps\r\n0, 100\r\n\r\n60, 200\r\n", None),
        (
            "time,rps\n0,100\n",
            Some("own.csv:1: the first line is not t_s,rps"),
        ),
        ("t_s,rps\n", Some("own.csv:1: there are no rows")),
        ("t_s,rps\n0,100\n60\n", Some("own.csv:3: not two numbers")),
        ("t_s,rps\n0,100,7\n", Some("own.csv:2: not two numbers")),
        ("t_s,rps\n0,-1\n", Some("own.csv:2: rps is out of range")),
        ("t_s,rps\n0,1\n0,2\n", Some("own.csv:3: t_s is not later")),
    ] {
        std::fs::write(folder.join("own.csv"), rows).unwrap();
        let source = plimsoll_policy::Source {
            name: "test.yaml",
            text: &text,
        };
        match (plimsoll_simulator::Scenario::parse(source, &folder), words) {
            (Ok(_), None) => {}
            (Err(error), Some(words)) => {
                assert!(error.to_string().contains(words), "{rows:?}: {error}")
            }
            (read, _) => panic!("{rows:?}: {:?}", read.map(|all| all.len())),
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn population_and_callers_are_checked() {
    let table = r"
        names: { zipf: 1.1 } | { zipf | traffic.0.names | write { count: 5000 }
        names: { count: 0 } | 0 }\n    load | traffic.0.names.count | from 1 to
        names: { cuont: 5 } | cuont | traffic.0.names.cuont | did you mean `count`
        cost: 0 | 0\n    load | traffic.0.cost | from 1 to 10000
        zones: [3] | 3] | traffic.0.zones.0 | from 0 to 2
        zones: [0] | [0] | traffic.0.zones | not with `clients`
        callers: { in_flight: 0, latency_s: 1 } | 0, latency | traffic.0.callers.in_flight | from 1
    ";
    for [line, at, path, words] in rows(table) {
        check(
            "bucket: api",
            &format!("bucket: api\n    {line}"),
            &at,
            &path,
            &words,
        );
    }
}

#[test]
fn changes_and_paces_are_checked() {
    let table = r"
        changes: [ { at_s: 31, bucket: api, limit: 5 } ] | 31 | changes.0.at_s | from 0 to 30
        changes: [ { at_s: 1, bucket: api } ] | { at_s: 1 | changes.0 | { at_s, tenant, weight }
        changes: [ { at_s: 1, bucket: apy, limit: 5 } ] | { at_s: 1 | changes.0 | no `apy` under
        changes: [ { at_s: 1, tenant: default, weight: 0 } ] | 0 } ] | changes.0.weight | from 0.001
        pace: { zones: [1, 3] } | 3] } | pace.zones.1 | from 0.5 to 2
    ";
    for [line, at, path, words] in rows(table) {
        check(
            "zones: 3\n",
            &format!("zones: 3\n{line}\n"),
            &at,
            &path,
            &words,
        );
    }
}
