//! The contract of refusals by reason, status and format, over HTTP and gRPC.

mod quota;

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use plimsoll_client::TenantLimit;
use plimsoll_core::decision::{Reason, Refusal, WaitClass};
use plimsoll_core::directive::LimitOwner;
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use std::time::SystemTime;

use bytes::Bytes;
use http::Response;

use super::*;
use crate::Head;

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn response(format: &Format, request: Head<'_>, of: RefusalOf<'_>) -> Response<Bytes> {
    format.response(&Refused::new(&format.form, request, of))
}

fn refusal(reason: Reason) -> Refusal {
    // A wait of 2 s.
    Refusal::new(reason, WaitClass::SHORTEST, 1 << 31)
}

fn of(reason: Reason, limit: Option<f64>) -> RefusalOf<'static> {
    RefusalOf {
        refusal: refusal(reason),
        bucket: Some("checkout"),
        limit,
        tenant_limit: None,
        quota: None,
        at: at(1_000),
    }
}

fn request(content_type: &'static str) -> Request<()> {
    let mut request = Request::new(());
    *request.uri_mut() = "/orders/7?force=1".parse().unwrap();
    request
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    request
}

fn over_http(
    format: &Format,
    reason: Reason,
    limit: Option<f64>,
) -> (StatusCode, HeaderMap, Value) {
    let request = request("application/json");
    let response = response(format, Head::of(&request), of(reason, limit));
    let (parts, body) = response.into_parts();
    (
        parts.status,
        parts.headers,
        serde_json::from_slice(&body).unwrap(),
    )
}

fn over_grpc(format: &Format, reason: Reason, limit: Option<f64>) -> Status {
    let request = request("application/grpc+proto");
    let response = response(format, Head::of(&request), of(reason, limit));
    assert_eq!(
        (response.status(), response.body().len()),
        (StatusCode::OK, 0)
    );
    Status::from_header_map(response.headers()).unwrap()
}

/// Returns the fields about limits, by name, without the prefix of most.
fn limit_fields(headers: &HeaderMap) -> Vec<(&str, &str)> {
    let fields = headers
        .iter()
        .filter(|(name, _)| name.as_str().contains("ratelimit"));
    let mut fields: Vec<_> = fields
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .collect();
    fields.sort_unstable();
    fields
}

#[test]
fn http_refusal_has_the_documented_form() {
    let (status, headers, problem) =
        over_http(&Format::DEFAULT, Reason::ClusterOverload, Some(1_000.0));
    assert_eq!(status, 429);
    assert_eq!(
        (&headers["content-type"], &headers["retry-after"]),
        (
            &"application/problem+json".parse().unwrap(),
            &"2".parse().unwrap()
        )
    );
    let expected = [
        ("ratelimit", r#""checkout";r=0;t=2"#),
        ("ratelimit-policy", r#""checkout";q=1000;w=1"#),
        ("x-ratelimit-limit", "1000"),
        ("x-ratelimit-reason", "cluster_overload"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1002"),
    ];
    assert_eq!(limit_fields(&headers), expected);
    let detail = words::detail(Reason::ClusterOverload, None);
    let expected = json!({
        "type": REDUCED_CAPACITY, "title": "Temporary Reduced Capacity", "status": 429, "detail": detail,
        "violated-policies": ["checkout"], "reason": "cluster_overload",
    });
    assert_eq!(problem, expected);
}

#[test]
fn each_problem_has_its_type_and_limit() {
    for (reason, r#type, has_limit, violated) in [
        (Reason::ClusterOverload, REDUCED_CAPACITY, true, true),
        (Reason::TenantLimit, QUOTA_EXCEEDED, false, true),
        (Reason::BurstGuard, REDUCED_CAPACITY, true, true),
        (Reason::ColdStart, REDUCED_CAPACITY, true, true),
        (Reason::TenantQuotaExceeded, QUOTA_EXCEEDED, false, true),
        (Reason::QuotaDegraded, "about:blank", false, false),
    ] {
        let (_, headers, problem) = over_http(&Format::DEFAULT, reason, Some(10.0));
        assert_eq!(problem["type"], r#type, "{reason:?}");
        assert_eq!(
            (&problem["reason"], problem["detail"].as_str()),
            (&json!(reason.as_str()), Some(words::detail(reason, None)))
        );
        assert_eq!(
            problem.get("violated-policies").is_some(),
            violated,
            "{reason:?}"
        );
        for field in [
            "ratelimit",
            "ratelimit-policy",
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
        ] {
            assert_eq!(
                headers.contains_key(field),
                has_limit,
                "{field} of {reason:?}"
            );
        }
        assert_eq!(headers["x-ratelimit-reason"], reason.as_str());
    }
}

#[test]
fn unknown_limit_is_left_out() {
    let (_, headers, _) = over_http(&Format::DEFAULT, Reason::ClusterOverload, None);
    let expected = [
        ("x-ratelimit-reason", "cluster_overload"),
        ("x-ratelimit-reset", "1002"),
    ];
    assert_eq!(limit_fields(&headers), expected);
    let info = over_grpc(&Format::DEFAULT, Reason::ClusterOverload, None)
        .get_details_error_info()
        .unwrap();
    assert!(!info.metadata.contains_key("limit"));
    let (_, headers, _) = over_http(&Format::DEFAULT, Reason::ClusterOverload, Some(0.0));
    assert_eq!(
        headers["ratelimit-policy"], r#""checkout";q=0;w=1"#,
        "a limit of zero is one"
    );
}

#[test]
fn header_families_are_switchable() {
    for (headers, ietf, x) in [
        (RateLimitHeaders::Both, true, true),
        (RateLimitHeaders::Ietf, true, false),
        (RateLimitHeaders::XRateLimit, false, true),
        (RateLimitHeaders::None, false, false),
    ] {
        let format = Format {
            form: RefusalFormat::default().headers(headers),
            respond: None,
        };
        let (_, fields, _) = over_http(&format, Reason::ClusterOverload, Some(10.0));
        assert!(fields.contains_key("retry-after"));
        let names: Vec<&str> = limit_fields(&fields)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(
            names.iter().filter(|name| !name.starts_with("x-")).count(),
            if ietf { 2 } else { 0 }
        );
        assert_eq!(
            names.iter().filter(|name| name.starts_with("x-")).count(),
            if x { 4 } else { 0 }
        );
        let metadata = over_grpc(&format, Reason::ClusterOverload, Some(10.0))
            .metadata()
            .clone();
        assert_eq!(metadata.contains_key(RATE_LIMIT_REASON), x);
    }
}

#[test]
fn title_follows_type_or_status() {
    let blank = Some("about:blank".into());
    let own = Some("https://shop.example/busy".into());
    for (problem_type, status, reason, title) in [
        (None, 429, Reason::QuotaDegraded, "Too Many Requests"),
        (None, 503, Reason::QuotaDegraded, "Service Unavailable"),
        (
            None,
            503,
            Reason::ClusterOverload,
            "Temporary Reduced Capacity",
        ),
        (None, 503, Reason::TenantLimit, "Quota Exceeded"),
        (
            blank.clone(),
            503,
            Reason::ClusterOverload,
            "Service Unavailable",
        ),
        (blank, 429, Reason::TenantLimit, "Too Many Requests"),
        (
            own,
            503,
            Reason::TenantLimit,
            "The tenant is above its limit",
        ),
    ] {
        let status = StatusCode::from_u16(status).unwrap();
        let form = RefusalFormat {
            status,
            problem_type,
            ..RefusalFormat::default()
        };
        let format = Format {
            form,
            respond: None,
        };
        let (got, _, problem) = over_http(&format, reason, None);
        assert_eq!((got, &problem["status"]), (status, &json!(status.as_u16())));
        assert_eq!(
            problem["title"], title,
            "{:?} {status} {reason:?}",
            format.form.problem_type
        );
    }
}

#[test]
fn grpc_pushback_excludes_used_up_quotas() {
    for reason in Reason::ALL {
        let status = over_grpc(&Format::DEFAULT, reason, Some(10.0));
        assert_eq!(
            (status.code(), status.message()),
            (Code::ResourceExhausted, words::title(reason))
        );
        let details = status.get_error_details();
        let info = details.error_info().unwrap();
        assert_eq!(info.reason, reason.as_str().to_ascii_uppercase());
        assert_eq!(
            (info.domain.as_str(), info.metadata["bucket"].as_str()),
            (ERROR_DOMAIN, "checkout")
        );
        let violations = details
            .quota_failure()
            .map_or(&[][..], |failure| &failure.violations);
        let violations: Vec<_> = violations
            .iter()
            .map(|one| (&*one.subject, &*one.description))
            .collect();
        let expected = [("bucket:checkout", words::detail(reason, None))];
        assert_eq!(
            violations,
            expected[usize::from(reason == Reason::QuotaDegraded)..]
        );
        let pushback = status
            .metadata()
            .get("grpc-retry-pushback-ms")
            .unwrap()
            .to_str()
            .unwrap();
        let delay = details.retry_info().and_then(|info| info.retry_delay);
        match reason {
            Reason::TenantQuotaExceeded => assert_eq!((pushback, delay), ("-1", None)),
            _ => assert_eq!(
                (pushback, delay),
                ("2000", Some(Duration::from_secs(2))),
                "{reason:?}"
            ),
        }
        assert_eq!(
            status.metadata().get(RATE_LIMIT_REASON).unwrap(),
            reason.as_str()
        );
    }
}

#[test]
fn closure_adapts_or_replaces_the_response() {
    let request = request("application/json");
    let respond = |format: &Format| {
        response(
            format,
            Head::of(&request),
            of(Reason::ClusterOverload, Some(10.0)),
        )
    };
    let adapted = Format {
        respond: Some(std::sync::Arc::new(|refused| {
            let mut response = refused.bytes();
            let facts = (
                refused.bucket(),
                refused.limit(),
                refused.request().uri.path(),
            );
            assert_eq!(facts, (Some("checkout"), Some(10.0), "/orders/7"));
            assert_eq!(
                (refused.retry_after(), refused.is_grpc()),
                (Duration::from_secs(2), false)
            );
            response
                .headers_mut()
                .insert("x-own", HeaderValue::from_static(refused.reason().as_str()));
            response
        })),
        ..Format::DEFAULT
    };
    let (mut default, adapted) = (respond(&Format::DEFAULT), respond(&adapted));
    default
        .headers_mut()
        .insert("x-own", HeaderValue::from_static("cluster_overload"));
    assert_eq!(
        (adapted.headers(), adapted.body()),
        (default.headers(), default.body())
    );
    let replaced = Format {
        respond: Some(std::sync::Arc::new(|_| Response::new("busy".into()))),
        ..Format::DEFAULT
    };
    assert_eq!(respond(&replaced).body().as_ref(), b"busy");
}

#[test]
fn tenant_limit_names_its_owner() {
    for (owner, word, detail) in [
        (LimitOwner::Tenant, "tenant", "its own limit"),
        (LimitOwner::Plan, "plan", "its plan"),
        (LimitOwner::Bucket, "bucket", "any one may send here"),
    ] {
        let request = request("application/json");
        let of = RefusalOf {
            tenant_limit: Some(TenantLimit {
                per_second: 5.0,
                owner,
            }),
            ..of(Reason::TenantLimit, Some(1_000.0))
        };
        let refused = response(&Format::DEFAULT, Head::of(&request), of);
        let policy = refused.headers()["ratelimit-policy"].to_str().unwrap();
        assert_eq!(policy, r#""checkout";q=5;w=1"#);
        let problem: Value = serde_json::from_slice(refused.body()).unwrap();
        assert_eq!(problem["limit-of"], word);
        assert!(problem["detail"].as_str().unwrap().contains(detail));
    }
}

#[test]
fn refusal_without_a_bucket_names_none() {
    for content_type in ["application/json", "application/grpc"] {
        let request = request(content_type);
        let of = RefusalOf {
            bucket: None,
            ..of(Reason::ClusterOverload, None)
        };
        let refused = response(&Format::DEFAULT, Head::of(&request), of);
        assert!(!refused.headers().contains_key("ratelimit"));
        if content_type == "application/json" {
            let problem: Value = serde_json::from_slice(refused.body()).unwrap();
            assert_eq!(problem.get("violated-policies"), None);
        } else {
            let status = Status::from_header_map(refused.headers()).unwrap();
            assert!(status.get_details_error_info().unwrap().metadata.is_empty());
        }
    }
}

#[test]
fn refusal_is_never_a_success() {
    let success = RefusalFormat::default().status(StatusCode::OK);
    let of = of(Reason::ColdStart, None);
    assert_eq!(success.http(&of).status(), 429, "a refusal is no success");
}
