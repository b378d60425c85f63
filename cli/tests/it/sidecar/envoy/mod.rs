//! The answers through a real Envoy with the shipped files, to the last header.

mod process;
mod stages;

use std::collections::BTreeMap;

use http::HeaderMap;
use http::uri::PathAndQuery;
use plimsoll_testing::process::{succeed, until, until_true};
use plimsoll_testing::turns::{IDLE, turn};
use serde_json::Value;
use tokio::runtime::Runtime;
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt;

use super::proxy::Answer;
use super::{Fleet, filled};
use process::Envoy;

/// Credentials of the shipped file.
pub(super) const ACME: (&str, &str) = ("authorization", "Basic YWNtZTpzZWNyZXQ=");
pub(super) const CORNER_SHOP: (&str, &str) = ("authorization", "Basic Y29ybmVyLXNob3A6c2VjcmV0");

/// Limits that leave nothing to chance.
const POLICY: &str = "\
rollout: { require_gates: false }
guardrails: off
buckets:
  checkout: { limit: 0, mode: enforce }
  search: { limit: 0, mode: shadow }
  reports: { limit: 1000000, mode: enforce }
  account: { limit: 0, mode: enforce }
  orders: { limit: 0, mode: enforce }
";

const TENANTS: &str = "tenants: { default: { weight: 1.0 }, acme: { weight: 1.0 }, corner-shop: { weight: 1.0 }, intruder: { weight: 1.0 } }";

/// Longer than a busy machine takes; after a timeout a request would pass undecided.
const PATIENT: (&str, &str) = ("timeout: 0.02s", "timeout: 5s");

/// Starts a fleet with limits that have reached the sidecar, and Envoy.
fn start(test: &str, replaced: &[(&str, &str)]) -> Option<(Fleet, Envoy)> {
    let rules = filled("envoy-rules.yaml", &[]);
    let fleet = Fleet::start(POLICY, TENANTS, Some(&rules), &[]);
    let envoy = Envoy::start(test, &fleet, &[replaced, &[PATIENT]].concat())?;
    until_true("the limits to reach the sidecar", || {
        let is_refused = |path| envoy.get(path, &[ACME]).status == 429;
        let is_withheld = || {
            envoy
                .get("/search", &[])
                .body
                .contains("x-plimsoll-shadow: drop")
        };
        is_refused("/checkout") && is_refused("/export") && is_withheld()
    });
    Some((fleet, envoy))
}

/// Removes the header fields of the proxy, and fields that differ from answer to answer.
fn fixed(headers: &HeaderMap) -> BTreeMap<String, String> {
    let mut fields: BTreeMap<String, String> = headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), value.to_str().unwrap().to_owned()))
        .collect();
    assert_eq!(fields.len(), headers.len(), "no header twice: {headers:?}");
    for name in ["date", "server", "content-length"] {
        fields.remove(name);
    }
    fields
}

/// Takes a header that is a whole number above 0.
fn take_number(fields: &mut BTreeMap<String, String>, name: &str) -> u64 {
    let number = fields
        .remove(name)
        .unwrap_or_else(|| panic!("no {name} in {fields:?}"));
    let number = number.parse().unwrap();
    assert!(number > 0, "{name}: {number}");
    number
}

fn check_refusal(answer: &Answer, bucket: &str) {
    assert_eq!(answer.status, 429);
    let mut fields = fixed(&answer.headers);
    let retry_after = take_number(&mut fields, "retry-after");
    take_number(&mut fields, "x-ratelimit-reset");
    let expected = [
        ("content-type", "application/problem+json".to_owned()),
        ("ratelimit", format!("\"{bucket}\";r=0;t={retry_after}")),
        ("ratelimit-policy", format!("\"{bucket}\";q=0;w=1")),
        ("x-envoy-ratelimited", "true".to_owned()),
        ("x-ratelimit-limit", "0".to_owned()),
        ("x-ratelimit-reason", "cluster_overload".to_owned()),
        ("x-ratelimit-remaining", "0".to_owned()),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value));
    assert_eq!(fields, BTreeMap::from(expected));
    let problem: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(
        (&problem["status"], &problem["reason"]),
        (&429.into(), &"cluster_overload".into())
    );
    assert_eq!(problem["violated-policies"], serde_json::json!([bucket]));
    assert_eq!(problem["title"], "Temporary Reduced Capacity");
}

#[test]
fn caller_behind_envoy_gets_the_whole_refusal() {
    let _turn = turn(IDLE);
    let over_tcp: &[(&str, &str)] = &[];
    let over_a_socket = &[(
        "{ cluster_name: plimsoll }",
        "{ cluster_name: plimsoll_socket }",
    )][..];
    for replaced in [over_tcp, over_a_socket] {
        let Some((_fleet, envoy)) = start("caller_behind_envoy", replaced) else {
            return;
        };
        check_refusal(&envoy.get("/checkout/7", &[ACME]), "checkout");
        // Refused for the second descriptor, though the first has room.
        check_refusal(&envoy.get("/export", &[ACME]), "account");
        assert_eq!(envoy.log(), Vec::<String>::new());
    }
}

#[test]
fn envoy_counts_requests_by_tenant_and_cost() {
    let _turn = turn(IDLE);
    let Some((fleet, envoy)) = start("envoy_counts_requests", &[]) else {
        return;
    };
    let counted = |bucket: &str| {
        fleet.sidecar_metric("plimsoll_decisions_total", &format!("bucket=\"{bucket}\""))
    };
    let refused = |tenant: &str| {
        fleet.status()["buckets"]["checkout"]["tenants"][tenant]["dropped"]
            .as_u64()
            .unwrap_or_default()
    };
    let before = ["reports", "account", "checkout"].map(counted);
    for _ in 0..3 {
        envoy.get("/export", &[CORNER_SHOP]);
    }
    // The credentials name the caller, and the caller cannot change the tenant.
    envoy.get(
        "/checkout",
        &[
            CORNER_SHOP,
            ("x-tenant", "intruder"),
            ("x-plimsoll-attempt", "2"),
        ],
    );
    let after = ["reports", "account", "checkout"].map(counted);
    assert_eq!([0, 1, 2].map(|at| after[at] - before[at]), [30.0, 3.0, 1.0]);
    let retried = |bucket: &str| {
        fleet.sidecar_metric("plimsoll_retried_total", &format!("bucket=\"{bucket}\""))
    };
    assert_eq!(["account", "checkout"].map(retried), [0.0, 1.0]);
    until_true("the controller to count the request for its tenant", || {
        refused("corner-shop") == 1
    });
    assert_eq!(refused("intruder"), 0);
    assert_eq!(envoy.get("/checkout", &[]).status, 401);
}

#[test]
fn backend_sees_no_forged_refusals() {
    let _turn = turn(IDLE);
    let Some((fleet, envoy)) = start("backend_sees", &[]) else {
        return;
    };
    let forged = [("x-plimsoll-shadow", "forged"), ("x-tenant", "forged")];
    let seen = |path: &str| {
        let answer = envoy.get(path, &forged);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let own =
            |line: &&str| line.starts_with("x-plimsoll-shadow") || line.starts_with("x-tenant");
        answer
            .body
            .lines()
            .filter(own)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    // Without a tenant the request still counts for the bucket.
    assert_eq!(seen("/search"), ["x-plimsoll-shadow: drop"]);
    // The sidecar gets no request.
    let before = fleet.sidecar_metric("plimsoll_decisions_total", "");
    assert_eq!(seen("/healthz"), Vec::<String>::new());
    assert_eq!(fleet.sidecar_metric("plimsoll_decisions_total", ""), before);
}

#[test]
fn unmatched_request_passes_and_is_counted() {
    let _turn = turn(IDLE);
    let unknown = ("descriptor_value: search }", "descriptor_value: unknown }");
    let fleet = Fleet::start(POLICY, TENANTS, Some(&filled("envoy-rules.yaml", &[])), &[]);
    let Some(envoy) = Envoy::start("no_rule", &fleet, &[unknown, PATIENT]) else {
        return;
    };
    assert_eq!(envoy.get("/search", &[]).status, 200);
    assert_eq!(fleet.sidecar_metric("plimsoll_decisions_total", ""), 0.0);
    assert_eq!(
        fleet.sidecar_metric(
            "plimsoll_sidecar_descriptors_passed_total",
            "cause=\"no_rule\""
        ),
        1.0
    );
}

fn call(envoy: &Envoy) -> Result<MetadataMap, Status> {
    Runtime::new().unwrap().block_on(async {
        let endpoint = Channel::from_shared(format!("http://{}", envoy.ingress)).unwrap();
        let mut grpc = Grpc::new(endpoint.connect().await.unwrap());
        grpc.ready().await.unwrap();
        let mut request = Request::new(7);
        request
            .metadata_mut()
            .insert(ACME.0, ACME.1.parse().unwrap());
        let codec = ProstCodec::<u64, u64>::default();
        let path = PathAndQuery::from_static("/shop.Orders/List");
        grpc.unary(request, path, codec)
            .await
            .map(|response| response.metadata().clone())
    })
}

#[test]
fn grpc_caller_behind_envoy_backs_off() {
    let _turn = turn(IDLE);
    let Some((fleet, envoy)) = start("grpc_caller", &[]) else {
        return;
    };
    let status = until("the limit of the gRPC route", || call(&envoy).err());
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(
        status
            .message()
            .starts_with("All callers together send more"),
        "{status:?}"
    );
    let metadata = status.metadata().clone().into_headers();
    let mut fields = fixed(&metadata);
    let pushback = take_number(&mut fields, "grpc-retry-pushback-ms");
    let wait = status
        .get_details_retry_info()
        .unwrap()
        .retry_delay
        .unwrap();
    assert!(
        wait.as_millis().abs_diff(u128::from(pushback)) <= 1,
        "{wait:?} {pushback}"
    );
    assert_eq!(
        status.get_details_error_info().unwrap().reason,
        "CLUSTER_OVERLOAD"
    );
    assert_eq!(
        fields.remove("x-envoy-ratelimited").as_deref(),
        Some("true"),
        "{fields:?}"
    );
    assert!(!fields.contains_key("content-type") || fields["content-type"] == "application/grpc");

    fleet.save(
        "policy.yaml",
        &POLICY.replace("orders: { limit: 0,", "orders: { limit: 1000000,"),
    );
    until("the call to pass", || call(&envoy).ok());
}

#[test]
fn shipped_rules_are_valid() {
    let rules = super::integration("envoy-rules.yaml");
    let rules = rules.to_str().unwrap();
    succeed(&["check", "--sidecar-rules", rules]);
}
