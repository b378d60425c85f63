//! The contract of refusals by an exact quota: they name the quota, and say when it has tokens again.

use std::sync::Arc;

use plimsoll_core::names::Name;
use plimsoll_core::quota::{OnStoreError, Quota, QuotaKey, QuotaRate};

use super::*;

fn quota(name: &str, max: u64, tokens: u64, every_ms: u64, lease: u64) -> Quota {
    let rate = QuotaRate::new(max, tokens, every_ms).unwrap();
    let name = Name::new(name).unwrap();
    Quota::new(name, rate, QuotaKey::Tenant, OnStoreError::Deny, lease).unwrap()
}

fn api_calls() -> Quota {
    quota("api_calls", 10_000, 10_000, 3_600_000, 100)
}

fn used_up(quota: &Quota) -> RefusalOf<'_> {
    RefusalOf {
        refusal: Refusal::until_reset(Duration::from_millis(90_500)),
        quota: Some(quota),
        ..of(Reason::TenantQuotaExceeded, Some(10.0))
    }
}

fn http(of: RefusalOf<'_>) -> (HeaderMap, Value) {
    let request = request("application/json");
    let response = response(&Format::DEFAULT, Head::of(&request), of);
    let body = serde_json::from_slice(response.body()).unwrap();
    (response.headers().clone(), body)
}

#[test]
fn used_up_quota_names_size_and_reset() {
    let (headers, problem) = http(used_up(&api_calls()));
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
    let burst = quota("burst", 5, 1, 250, 1);
    assert_eq!(
        http(used_up(&burst)).0.get("ratelimit-policy").unwrap(),
        "\"burst\";q=5;w=1"
    );
}

#[test]
fn grpc_callers_learn_not_to_retry_quotas() {
    let (request, quota) = (request("application/grpc"), api_calls());
    let response = response(&Format::DEFAULT, Head::of(&request), used_up(&quota));
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
    let (request, quota) = (request("application/json"), api_calls());
    let response = response(&format, Head::of(&request), used_up(&quota));
    assert_eq!(response.body().as_ref(), b"api_calls");
}
