//! The rate limit service over the wire: what each request is answered, and the error of each that cannot be.

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use serde_json::Value;
use tonic::Code as Grpc;

use super::Fleet;
use super::rls_caller::{Caller, codes, descriptor, field, names, request, with_addend, with_limit};
use crate::fleet::TENANTS;
use crate::process::until;
use crate::turns::{IDLE, turn};

/// Limits that leave nothing to chance: one admits all, one refuses all, one would.
const POLICY: &str = "\
rollout: { require_gates: false }
guardrails: off
buckets:
  open: { limit: 1000000, mode: enforce }
  full: { limit: 0, mode: enforce }
  watched: { limit: 0, mode: shadow }
";

const RULES: &str = "\
rls:
  domains:
    shop:
      descriptors:
        - { key: to, value: open, bucket: open }
        - { key: to, value: full, bucket: full, descriptors: [{ key: tenant, bucket: full, tenant: { entry: tenant } }] }
        - { key: to, value: watched, bucket: watched }
        - { key: to, value: dear, bucket: open, cost: 6000 }
        - { key: to, value: free, unlimited: true }
        - { key: call, bucket: full, refusal: grpc }
        - { key: quiet, bucket: full, refusal: bare }
        - { key: plan, bucket: open, takes_limit: true }
        - { key: trial, bucket: watched, takes_limit: true }
";

const OPEN: [(&str, &str); 1] = [("to", "open")];
const FULL: [(&str, &str); 1] = [("to", "full")];
const WATCHED: [(&str, &str); 1] = [("to", "watched")];

/// A fleet whose limits have reached the sidecar.
fn fleet() -> (Fleet, Caller) {
    let fleet = Fleet::start(POLICY, TENANTS, Some(RULES), &[]);
    let mut caller = Caller::connect(fleet.sidecar.address("listen"));
    until("the limits to reach the sidecar", || {
        let refuses = caller.shop(vec![descriptor(&FULL)]).overall_code() == Code::OverLimit;
        let would =
            field(&caller.shop(vec![descriptor(&WATCHED)]).request_headers_to_add, "x-plimsoll-shadow")
                == Some("drop");
        (refuses && would).then_some(())
    });
    (fleet, caller)
}

/// The decisions that the sidecar has counted.
fn decisions(fleet: &Fleet) -> f64 {
    fleet.sidecar_metric("plimsoll_decisions_total", "")
}

fn body(response: &RateLimitResponse) -> &str {
    str::from_utf8(&response.raw_body).unwrap()
}

#[test]
fn each_descriptor_has_its_status_and_a_request_is_refused_if_any_is() {
    let _turn = turn(IDLE);
    let (_fleet, mut caller) = fleet();
    let other = [("to", "nowhere")];
    let longer = [("to", "open"), ("and", "more")];
    let free = [("to", "free")];
    let (ok, over) = (Code::Ok, Code::OverLimit);
    for (descriptors, expected, overall) in [
        (vec![&OPEN[..]], vec![ok], ok),
        (vec![&FULL[..]], vec![over], over),
        (vec![&WATCHED[..]], vec![ok], ok),
        (vec![&free[..]], vec![ok], ok),
        // Rules match a descriptor only as a whole, and no rule means no limit.
        (vec![&other[..]], vec![ok], ok),
        (vec![&longer[..]], vec![ok], ok),
        (vec![&OPEN[..], &FULL[..], &other[..]], vec![ok, over, ok], over),
        (vec![&FULL[..], &FULL[..]], vec![over, over], over),
        (vec![&WATCHED[..], &OPEN[..]], vec![ok, ok], ok),
    ] {
        let response = caller.shop(descriptors.iter().map(|entries| descriptor(entries)).collect());
        assert_eq!((codes(&response), response.overall_code()), (expected, overall), "{descriptors:?}");
        assert_eq!(response.response_headers_to_add.is_empty(), overall == ok, "{descriptors:?}");
        assert_eq!(response.raw_body.is_empty(), overall == ok, "{descriptors:?}");
    }

    let response =
        caller.shop(vec![descriptor(&OPEN), descriptor(&FULL), descriptor(&other), descriptor(&free)]);
    let [open, full, other, free] = &response.statuses[..] else { panic!("{response:?}") };
    let limit = open.current_limit.as_ref().unwrap();
    assert_eq!(
        (limit.name.as_str(), limit.requests_per_unit, limit.unit()),
        ("open", 1_000_000, Unit::Second)
    );
    assert!(open.limit_remaining > 0 && open.duration_until_reset.is_none(), "{open:?}");
    let limit = full.current_limit.as_ref().unwrap();
    assert_eq!((limit.name.as_str(), limit.requests_per_unit), ("full", 0));
    assert_eq!(full.limit_remaining, 0);
    assert!(full.duration_until_reset.as_ref().unwrap().seconds > 0, "{full:?}");
    assert_eq!((&other.current_limit, &free.current_limit), (&None, &None));
    // In another domain no rule matches.
    let response = caller.ask(request("elsewhere", vec![descriptor(&FULL)])).unwrap();
    assert_eq!((codes(&response), response.overall_code()), (vec![ok], ok));
}

#[test]
fn refusal_takes_the_form_that_its_rule_names() {
    let _turn = turn(IDLE);
    let (_fleet, mut caller) = fleet();
    let response = caller.shop(vec![descriptor(&FULL)]);
    assert_eq!(field(&response.response_headers_to_add, "content-type"), Some("application/problem+json"));
    let problem: Value = serde_json::from_str(body(&response)).unwrap();
    assert_eq!((&problem["status"], &problem["reason"]), (&429.into(), &"cluster_overload".into()));
    assert_eq!(problem["violated-policies"], serde_json::json!(["full"]));
    let retry_after: u64 = field(&response.response_headers_to_add, "retry-after").unwrap().parse().unwrap();
    let reset = response.statuses[0].duration_until_reset.as_ref().unwrap();
    assert!(reset.seconds.unsigned_abs().abs_diff(retry_after) <= 1, "{reset:?} {retry_after}");
    let names = names(&response.response_headers_to_add);
    for name in ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "x-ratelimit-reason"] {
        assert!(names.contains(&name), "{names:?}");
    }

    let response = caller.shop(vec![descriptor(&[("call", "x")])]);
    assert_eq!(field(&response.response_headers_to_add, "content-type"), None);
    assert!(body(&response).starts_with("All callers together"), "{:?}", body(&response));
    let pushback: u64 =
        field(&response.response_headers_to_add, "grpc-retry-pushback-ms").unwrap().parse().unwrap();
    assert!(pushback > 0);

    let response = caller.shop(vec![descriptor(&[("quiet", "x")])]);
    assert_eq!(body(&response), "");
    assert!(field(&response.response_headers_to_add, "retry-after").is_some(), "{response:?}");
}

#[test]
fn withheld_refusal_is_named_to_the_proxy_and_in_the_metadata() {
    let _turn = turn(IDLE);
    let (fleet, mut caller) = fleet();
    let response = caller.shop(vec![descriptor(&WATCHED), descriptor(&WATCHED)]);
    let names = names(&response.request_headers_to_add);
    assert_eq!(names, ["x-plimsoll-shadow"], "once, however many descriptors would be refused");
    assert!(response.dynamic_metadata.is_some_and(|metadata| !metadata.fields.is_empty()));
    let response = caller.shop(vec![descriptor(&OPEN)]);
    assert_eq!((response.request_headers_to_add.len(), &response.dynamic_metadata), (0, &None));
    let would = fleet.sidecar_metric("plimsoll_decisions_total", "result=\"would_drop\"");
    assert!(would >= 2.0, "{would}");
}

#[test]
fn addends_weigh_a_request_and_zero_only_checks() {
    let _turn = turn(IDLE);
    let (fleet, mut caller) = fleet();
    let counted = |caller: &mut Caller, request: RateLimitRequest| {
        let before = decisions(&fleet);
        let response = caller.ask(request).unwrap();
        (decisions(&fleet) - before, response.overall_code())
    };
    let of = |descriptors, hits_addend| RateLimitRequest { hits_addend, ..request("shop", descriptors) };
    let (ok, over) = (Code::Ok, Code::OverLimit);
    for (name, request, hits, overall) in [
        ("none means one", of(vec![descriptor(&OPEN)], 0), 1.0, ok),
        ("the request's own", of(vec![descriptor(&OPEN)], 7), 7.0, ok),
        ("for each descriptor", of(vec![descriptor(&OPEN), descriptor(&OPEN)], 3), 6.0, ok),
        ("a descriptor's own wins", of(vec![with_addend(&OPEN, 4), descriptor(&OPEN)], 7), 11.0, ok),
        ("the largest", of(vec![descriptor(&OPEN)], u32::MAX), 10_000.0, ok),
        ("times the cost of the rule", of(vec![descriptor(&[("to", "dear")])], 0), 6_000.0, ok),
        ("a refused request weighs as much", of(vec![descriptor(&FULL)], 5), 5.0, over),
        ("zero of a descriptor only checks", of(vec![with_addend(&OPEN, 0)], 7), 0.0, ok),
        ("and is told no", of(vec![with_addend(&FULL, 0)], 0), 0.0, over),
        ("no rule counts nothing", of(vec![descriptor(&[("x", "y")])], 9), 0.0, ok),
    ] {
        assert_eq!(counted(&mut caller, request), (hits, overall), "{name}");
    }
}

#[test]
fn request_that_cannot_be_decided_has_a_clear_error_and_counts_nothing() {
    let _turn = turn(IDLE);
    let (fleet, mut caller) = fleet();
    let before = decisions(&fleet);
    let long = "x".repeat(1025);
    let many = |count| vec![descriptor(&OPEN); count];
    let wide: Vec<(&str, &str)> = vec![("to", "open"); 17];
    for (name, request, words) in [
        ("empty domain", request("", many(1)), "domain"),
        ("no descriptors", request("shop", Vec::new()), "descriptors"),
        ("too many descriptors", request("shop", many(33)), "32"),
        ("too many entries", request("shop", vec![descriptor(&wide)]), "16"),
        ("a long key", request("shop", vec![descriptor(&[(&long, "x")])]), "1024"),
    ] {
        let status = caller.ask(request).unwrap_err();
        assert_eq!(status.code(), Grpc::InvalidArgument, "{name}: {status:?}");
        let message = status.message().replace(',', "");
        assert!(message.contains(words), "{name}: {message:?}");
        assert!(message.len() < 300, "{name}: {message:?}");
    }
    let logged = |words: &str| fleet.sidecar.log().iter().filter(|line| line.contains(words)).count();
    until("the first of each kind to be logged", || {
        let kinds =
            ["`domain` must", "`descriptors` must", "has 33 elements", "has 17 elements", "1025 bytes"];
        kinds.iter().all(|words| logged(words) == 1).then_some(())
    });
    assert_eq!(logged("`domain` must"), 1, "later ones of a kind are not");
    let status = caller.ask(request(&"d".repeat(70_000), many(1))).unwrap_err();
    assert!(matches!(status.code(), Grpc::ResourceExhausted | Grpc::OutOfRange), "{status:?}");
    assert_eq!(decisions(&fleet), before, "none of them counts");
    // The most that is allowed, on the same connection.
    let entries: Vec<(&str, &str)> = vec![("k", &long[..1024]); 16];
    for _ in 0..2 {
        assert_eq!(caller.shop(vec![descriptor(&entries)]).overall_code(), Code::Ok);
    }
    until("the log to name the first descriptor without a rule", || {
        (logged("matches no rule") == 1).then_some(())
    });
    assert_eq!(logged("xxx"), 0, "values are not logged");
    assert_eq!(caller.shop(many(32)).statuses.len(), 32);
    assert_eq!(decisions(&fleet), before + 32.0);
}

#[test]
fn other_methods_and_requests_without_end_have_clear_errors() {
    let _turn = turn(IDLE);
    let (_fleet, mut caller) = fleet();
    for path in [
        "/envoy.service.ratelimit.v3.RateLimitService/Other",
        "/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit",
        "/",
    ] {
        let status = caller.call(path);
        assert_eq!(status.code(), Grpc::Unimplemented, "{path}: {status:?}");
    }
    let status = caller.call_without_end();
    assert_eq!(status.code(), Grpc::DeadlineExceeded, "{status:?}");
    assert_eq!(caller.shop(vec![descriptor(&FULL)]).overall_code(), Code::OverLimit);
}

#[test]
fn limit_of_a_descriptor_applies_where_the_rule_takes_it() {
    let _turn = turn(IDLE);
    let (fleet, mut caller) = fleet();
    let (ok, over) = (Code::Ok, Code::OverLimit);
    let hour = Unit::Hour as i32;
    let mut ask = |entries: &[(&str, &str)], limit| caller.shop(vec![with_limit(entries, limit, hour)]);
    let before = decisions(&fleet);
    let asked: Vec<Code> = (0..5).map(|_| ask(&[("plan", "small")], 3).overall_code()).collect();
    assert_eq!(asked, [ok, ok, ok, over, over]);
    assert_eq!(decisions(&fleet), before + 3.0, "its refusals are not offered to the bucket");
    let refused = ask(&[("plan", "small")], 3);
    let status = &refused.statuses[0];
    let limit = status.current_limit.as_ref().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit()), (3, Unit::Hour));
    assert_eq!(status.limit_remaining, 0);
    assert_eq!(field(&refused.response_headers_to_add, "x-ratelimit-reason"), Some("tenant_limit"));
    // Other entries and other limits have token buckets of their own.
    assert_eq!(ask(&[("plan", "large")], 3).overall_code(), ok);
    assert_eq!(ask(&[("plan", "small")], 4).overall_code(), ok);
    assert_eq!(ask(&[("plan", "none")], 0).overall_code(), over);
    // Rules that do not take it ignore it.
    assert_eq!(ask(&OPEN, 0).overall_code(), ok);
    // Without a known unit it is no limit, and that of the bucket holds.
    for unit in [0, 99] {
        assert_eq!(caller.shop(vec![with_limit(&[("plan", "x")], 0, unit)]).overall_code(), ok);
    }
    let mut ask = |entries: &[(&str, &str)], limit| caller.shop(vec![with_limit(entries, limit, hour)]);
    // In shadow it is withheld, as the bucket's.
    assert_eq!(ask(&[("trial", "x")], 0).overall_code(), ok);
}
