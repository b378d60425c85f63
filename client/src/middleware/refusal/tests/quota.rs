//! The contract of refusals by an exact quota: they name the quota, and say when it has tokens again.

use std::sync::Arc;

use plimsoll_core::names::Name;
use plimsoll_core::quota::{OnStoreError, Quota, QuotaKey, QuotaRate};

use super::*;

fn used_up() -> RefusedBy {
    let rate = QuotaRate::new(10_000, 10_000, 3_600_000).unwrap();
    let name = Name::new("api_calls").unwrap();
    let quota = Quota::new(name, rate, QuotaKey::Tenant, OnStoreError::Deny, 100).unwrap();
    let refusal = Refusal::until_reset(Duration::from_millis(90_500));
    RefusedBy {
        refusal,
        quota: Some(Arc::new(quota)),
        ..by(Reason::TenantQuotaExceeded, bucket(per_second(10.0)))
    }
}

fn http(by: &RefusedBy) -> (HeaderMap, Value) {
    let request = request("application/json");
    let response = response(&Format::DEFAULT, Head::of(&request), by, at(1_000));
    let body = serde_json::from_slice(response.body()).unwrap();
    (response.headers().clone(), body)
}

#[test]
fn used_up_quota_names_size_and_reset() {
    let (headers, problem) = http(&used_up());
    for (name, value) in [
        ("ratelimit-policy", "\"api_calls\";q=10000;w=3600"),
        ("ratelimit", "\"api_calls\";r=0;t=91"),
        ("retry-after", "91"),
        ("x-ratelimit-limit", "10000"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1091"),
        ("x-ratelimit-reason", "tenant_quota_exceeded"),
    ] {
        assert_eq!(headers.get(name).unwrap(), value, "{name}");
    }
    assert_eq!(problem["type"], QUOTA_EXCEEDED);
    assert_eq!(problem["violated-policies"], json!(["api_calls"]));
    assert_eq!(problem["reason"], "tenant_quota_exceeded");
}

#[test]
fn fast_refill_is_a_one_second_window() {
    let mut by = used_up();
    let rate = QuotaRate::new(5, 1, 250).unwrap();
    let name = Name::new("burst").unwrap();
    by.quota = Some(Arc::new(
        Quota::new(name, rate, QuotaKey::Tenant, OnStoreError::Deny, 1).unwrap(),
    ));
    assert_eq!(
        http(&by).0.get("ratelimit-policy").unwrap(),
        "\"burst\";q=5;w=1"
    );
}

#[test]
fn grpc_callers_learn_not_to_retry_quotas() {
    let request = request("application/grpc");
    let response = response(&Format::DEFAULT, Head::of(&request), &used_up(), at(1_000));
    let status = Status::from_header_map(response.headers()).unwrap();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.get_details_retry_info().is_none());
    assert_eq!(
        status.metadata().get("grpc-retry-pushback-ms").unwrap(),
        "-1"
    );
    let failure = status.get_details_quota_failure().unwrap();
    assert_eq!(failure.violations[0].subject, "quota:api_calls");
    let info = status.get_details_error_info().unwrap();
    assert_eq!(info.reason, "TENANT_QUOTA_EXCEEDED");
    assert_eq!(
        (
            info.metadata["quota"].as_str(),
            info.metadata["max"].as_str()
        ),
        ("api_calls", "10000")
    );
    assert_eq!(info.metadata["bucket"], "checkout");
}

#[test]
fn closure_sees_the_quota() {
    let respond = |refused: &Refused<'_>| {
        let quota = refused.quota().map(|quota| quota.name.to_string());
        assert_eq!(refused.retry_after(), Duration::from_millis(90_500));
        Response::new(quota.unwrap_or_default().into())
    };
    let format = Format {
        respond: Some(Arc::new(respond)),
        ..Format::DEFAULT
    };
    let request = request("application/json");
    let response = response(&format, Head::of(&request), &used_up(), at(1_000));
    assert_eq!(response.body().as_ref(), b"api_calls");
}
