//! The queries of the dashboards and of the alerts, answered by a real Prometheus that scrapes `plimsoll up` and a sidecar:
//! each is valid, and has data unless it is about a fault or a part that the demo does not have. No alert fires there.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;

use plimsoll_testing::process::{
    FREE_SIDECAR, Process, has_python_package, python, until, until_true,
};
use plimsoll_testing::turns::turn;
use serde_json::Value;

use super::RealPrometheus;
use crate::house::{entries, root};

const TEST: &str = "prometheus::dashboards::every_query_is_answered";
/// Load of all buckets together, in requests/s.
const OFFERED: u32 = 500;
const POLICY: &str = "
quotas: { pages: { max: 20, every: 10s, on_store_error: allow } }
buckets:
  checkout: { limit: 100, mode: enforce, candidate: 80 }
  search: { limit: 20, mode: shadow }
  reports: { limit: 50, mode: enforce, quotas: [pages] }
rollout: { require_gates: false }
";
const TENANTS: &str = "
plans: { gold: { weight: 2 } }
tenants: { default: { weight: 1 }, enterprise_acme: { weight: 2, limits: { search: 15 } } }
";

/// Metrics that the fleet does not have, because they are about something that it is without.
const ABSENT: [&[&str]; 6] = [
    // A canary that failed, an extra gate, a learned limit.
    &[
        "plimsoll_rollout_last_breach_timestamp_seconds",
        "plimsoll_rollout_query_value",
        "plimsoll_bucket_learned_limit",
        "plimsoll_bucket_learned_days",
    ],
    // A second controller and its store.
    &[
        "plimsoll_member_leading",
        "plimsoll_members",
        "plimsoll_lead_confirmed",
        "plimsoll_members_files_differ",
        "plimsoll_store_endpoints",
    ],
    // Certificates and tokens.
    &[
        "plimsoll_certificate_not_after_timestamp_seconds",
        "plimsoll_certificate_not_before_timestamp_seconds",
        "plimsoll_certificate_untrusted",
        "plimsoll_certificates_refused",
        "plimsoll_tokens_refused",
    ],
    // Peers that break a rule.
    &["plimsoll_streams_rejected_total"],
    // Wrong wiring, and tenants beyond the first 50.
    &[
        "plimsoll_setup_problems",
        "plimsoll_tenants_other",
        "plimsoll_tenants_other_offered_rps",
    ],
    // A catalogue.
    &[
        "plimsoll_catalogue_rows",
        "plimsoll_catalogue_rows_without_room_total",
    ],
];

/// Alerts that may fire when the processes of the demo get too little time.
const OF_A_BUSY_MACHINE: [&str; 6] = [
    "PlimsollAdmittedAboveLimit",
    "PlimsollGuardRefusing",
    "PlimsollQuotaDegraded",
    "PlimsollSidecarLate",
    "PlimsollUnderadmitting",
    "PlimsollZoneOnHold",
];

/// Returns the shipped rules, with waits of 1 s before an alert fires.
fn rules() -> String {
    let shipped = fs::read_to_string(root().join("charts/plimsoll/alerts.yaml")).unwrap();
    let line = |line: &str| match line.trim_start().strip_prefix("for: ") {
        Some(wait) => line.replace(wait, "1s"),
        None => line.to_owned(),
    };
    shipped.lines().map(|text| line(text) + "\n").collect()
}

/// Returns the names of metrics in a query.
fn metrics(query: &str) -> BTreeSet<&str> {
    let in_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let names = query.match_indices("plimsoll_").map(|(start, _)| {
        let rest = &query[start..];
        &rest[..rest.find(|letter| !in_name(letter)).unwrap_or(rest.len())]
    });
    names.collect()
}

/// Leases that ended: none, unless the machine is so busy that the quota server answers late.
const UNSURE: &str = "plimsoll_quota_lost_tokens_total";

fn is_absent(metric: &str) -> bool {
    let mut absent = ABSENT.iter().flat_map(|of| of.iter());
    metric == UNSURE || absent.any(|it| *it == metric)
}

/// Returns the queries of all dashboards, with values for their variables.
fn queries() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for path in entries(&root().join("dashboards")) {
        let dashboard: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        for panel in dashboard["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let query = target["expr"].as_str().unwrap();
                // One bucket or all: no bucket of the fleet has every kind of data.
                let query = query
                    .replace("=~\"$bucket\"", "=~\".+\"")
                    .replace("=\"$bucket\"", "=~\".+\"")
                    .replace("$__rate_interval", "5s");
                assert!(!query.contains('$'), "{}: {query}", path.display());
                found.insert(query);
            }
        }
    }
    assert!(found.len() > 100, "only {} queries were found", found.len());
    found
}

/// Returns the addresses that `up` prints: of admin ports and of services.
fn addresses(output: &str) -> Vec<SocketAddr> {
    let parts = output.lines().filter(|line| !line.starts_with("console"));
    let urls = parts.filter_map(|line| {
        let (_, url) = line.rsplit_once("http://")?;
        url.split('/').next()?.parse().ok()
    });
    urls.collect()
}

/// Reads dashboards as Grafana's own models do, and fails for a field that these do not keep: Grafana would ignore it.
const MODELS: &str = "
import json, sys
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

def lost(given, kept, path):
    if isinstance(given, dict) and isinstance(kept, dict):
        for name, value in given.items():
            if value not in (None, [], {}, '', False):
                yield from lost(value, kept.get(name), f'{path}.{name}')
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for number, value in enumerate(given):
            yield from lost(value, kept[number], f'{path}[{number}]')
    elif given != kept:
        yield path

register_default_plugins()
for name, dashboard in json.load(sys.stdin).items():
    kept = json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))
    if found := list(lost(dashboard, kept, name)):
        sys.exit(', '.join(found))
";

#[test]
fn models_of_grafana_keep_every_field() {
    if !has_python_package("prometheus::dashboards", "grafana_foundation_sdk") {
        return;
    }
    let dashboards = entries(&root().join("dashboards")).into_iter().map(|path| {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().display().to_string();
        (name, serde_json::from_str(&text).unwrap())
    });
    let dashboards = Value::Object(dashboards.collect());
    python(MODELS, &dashboards.to_string()).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn every_query_is_answered() {
    let _turn = turn(OFFERED);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (policy, tenants) = (file("policy.yaml", POLICY), file("tenants.yaml", TENANTS));
    let up = Process::spawn(&["up", "--policy", &policy, "--tenants", &tenants]);
    // The addresses are printed before the first table.
    until_true("the demo to run", || {
        up.output().contains("\nbucket / tenant")
    });
    let output = up.output();
    let zone = output
        .lines()
        .find(|line| line.starts_with("zone-a "))
        .unwrap();
    let parent = format!("http://{}", zone.split_whitespace().nth(2).unwrap());
    let sidecar = ["sidecar", "--zone", "zone-a", "--aggregator", &parent];
    let sidecar = Process::start(&[&sidecar[..], &FREE_SIDECAR].concat());
    let mut pages = addresses(&output);
    assert_eq!(pages.len(), 8, "{output}");
    pages.push(sidecar.address("admin"));
    let count = pages.len();
    let rules = rules();
    let Some(server) = RealPrometheus::start_with_rules(TEST, pages, &rules) else {
        return;
    };

    until("every page to be scraped", || {
        (server.query("up == 1")?.len() == count + 1).then_some(())
    });

    // Valid, with data or without.
    let invalid = |query: &String| server.query(query).is_none();
    let invalid: Vec<String> = queries().into_iter().filter(invalid).collect();
    assert!(invalid.is_empty(), "not valid: {invalid:#?}");

    let mut open = queries();
    // An alert is silent here, so each of its metrics must have data.
    open.extend(metrics(&rules).into_iter().map(str::to_owned));
    open.retain(|query| !metrics(query).into_iter().any(is_absent));
    let mut seen = 0;
    until_true("every query to have data", || {
        open.retain(|query| server.query(query).is_none_or(|it| it.is_empty()));
        if open.len() != seen {
            seen = open.len();
            eprintln!("without data: {open:#?}");
        }
        open.is_empty()
    });
    let present = ABSENT.iter().flat_map(|of| of.iter());
    let present = present.filter(|metric| server.query(metric) != Some(Vec::new()));
    let present: Vec<&&str> = present.collect();
    assert!(present.is_empty(), "they are not absent: {present:?}");
    let failing = server.failing_rules().unwrap();
    assert!(failing.is_empty(), "{failing:#?}");
    let mut firing = server.firing().unwrap();
    firing.retain(|alert| !OF_A_BUSY_MACHINE.contains(&alert.as_str()));
    assert!(firing.is_empty(), "{firing:?}");
}
