//! The response to a refused request: a problem document over HTTP, a status with details over gRPC.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use plimsoll_core::decision::{Reason, Refusal};
use serde::Serialize;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::Head;

/// The default `type` of problem documents.
pub const PROBLEM_TYPE: &str = "https://plimsoll.dev/problems/overload";
/// The `domain` of the `ErrorInfo` in gRPC refusals.
pub const ERROR_DOMAIN: &str = "plimsoll.dev";

/// The longest path that a refusal repeats, in bytes: a refusal stays small, and peers bound the headers that
/// carry a gRPC refusal.
const PATH_BYTES_MAX: usize = 1_024;

const RATE_LIMIT_REASON: &str = "x-ratelimit-reason";
const RETRY_PUSHBACK: &str = "grpc-retry-pushback-ms";

/// An RFC 9457 problem document.
#[derive(Serialize)]
struct Problem<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<&'a str>,
    reason: &'a str,
}

/// Makes the response to a refused request.
pub(super) fn response(refusal: Refusal, request: Head<'_>, problem_type: &str) -> Response<Bytes> {
    let path = Some(request.uri.path()).filter(|path| path.len() <= PATH_BYTES_MAX);
    if is_grpc(request) { grpc(refusal, path) } else { problem(refusal, path, problem_type) }
}

fn is_grpc(request: Head<'_>) -> bool {
    let content_type = request.headers.get(CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

fn problem(refusal: Refusal, path: Option<&str>, problem_type: &str) -> Response<Bytes> {
    let status = StatusCode::TOO_MANY_REQUESTS;
    let reason = refusal.reason().as_str();
    let problem = Problem {
        r#type: problem_type,
        title: title(refusal.reason()),
        status: status.as_u16(),
        detail: detail(refusal.reason()),
        instance: path,
        reason,
    };
    // Texts and numbers always serialize; without a body, the headers would still be complete.
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(refusal.retry_after())));
    headers.insert(HeaderName::from_static(RATE_LIMIT_REASON), HeaderValue::from_static(reason));
    response
}

/// Makes a trailers-only response, with the status among the headers and no body.
fn grpc(refusal: Refusal, path: Option<&str>) -> Response<Bytes> {
    let mut details = ErrorDetails::new();
    details
        .set_retry_info(Some(refusal.retry_after()))
        .add_quota_failure_violation(path.unwrap_or_default(), detail(refusal.reason()))
        // Google's rules for error reasons ask for capitals.
        .set_error_info(refusal.reason().as_str().to_ascii_uppercase(), ERROR_DOMAIN, []);
    let pushback_ms = i32::try_from(refusal.retry_after().as_millis()).unwrap_or(i32::MAX);
    let mut metadata = MetadataMap::new();
    metadata.insert(RETRY_PUSHBACK, pushback_ms.into());
    metadata.insert(RATE_LIMIT_REASON, MetadataValue::from_static(refusal.reason().as_str()));
    let message = title(refusal.reason());
    Status::with_error_details_and_metadata(Code::ResourceExhausted, message, details, metadata).into_http()
}

const fn title(reason: Reason) -> &'static str {
    match reason {
        Reason::ClusterOverload => "The service is overloaded",
        Reason::TenantLimit => "The tenant is above its limit",
        Reason::BurstGuard => "Too many requests at once",
        Reason::ColdStart => "The service is starting",
    }
}

const fn detail(reason: Reason) -> &'static str {
    match reason {
        Reason::ClusterOverload => {
            "This request was refused to shed load. Retry after the given time, with exponential backoff."
        }
        Reason::TenantLimit => {
            "This tenant sends more requests than its own limit allows. Send fewer, and retry after the given time."
        }
        Reason::BurstGuard => {
            "This instance received more requests at once than it may serve. Retry after the given time."
        }
        Reason::ColdStart => {
            "This instance serves few requests until it has received its limits. Retry after the given time."
        }
    }
}

/// Rounds up to at least 1, so that no caller retries at once.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_rounded_up_to_whole_seconds() {
        for (wait, seconds) in [
            (Duration::ZERO, 1),
            (Duration::from_nanos(1), 1),
            (Duration::from_secs(1), 1),
            (Duration::from_millis(1_001), 2),
            (Duration::from_millis(2_999), 3),
            (Duration::MAX, u64::MAX),
        ] {
            assert_eq!(whole_seconds(wait), seconds, "{wait:?}");
        }
    }

    #[test]
    fn every_reason_is_named_over_http_and_grpc() {
        for reason in Reason::ALL {
            let refusal = Refusal::new(reason, 1 << 31);
            let mut request = http::Request::new(());
            let over_http = response(refusal, Head::of(&request), PROBLEM_TYPE);
            assert_eq!(over_http.headers()[RATE_LIMIT_REASON], reason.as_str());
            let problem: serde_json::Value = serde_json::from_slice(over_http.body()).unwrap();
            assert_eq!(problem["reason"], reason.as_str());
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            let over_grpc = response(refusal, Head::of(&request), PROBLEM_TYPE);
            assert_eq!(over_grpc.headers()[RATE_LIMIT_REASON], reason.as_str());
            let status = Status::from_header_map(over_grpc.headers()).unwrap();
            assert_eq!(status.code(), Code::ResourceExhausted);
            let info = status.get_details_error_info().unwrap();
            assert_eq!(info.reason, reason.as_str().to_ascii_uppercase());
            assert_eq!((problem["title"].as_str(), refusal.reason()), (Some(status.message()), reason));
        }
    }

    #[test]
    fn long_path_does_not_enlarge_the_refusal() {
        let refusal = Refusal::new(Reason::ClusterOverload, u32::MAX);
        for content_type in ["application/json", "application/grpc"] {
            let mut request = http::Request::new(());
            *request.uri_mut() = format!("/{}", "x".repeat(60_000)).parse().unwrap();
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            let response = response(refusal, Head::of(&request), PROBLEM_TYPE);
            let size: usize = response.headers().values().map(HeaderValue::len).sum();
            assert!(size < 2_048, "{size} bytes of headers for {content_type}");
        }
    }
}
