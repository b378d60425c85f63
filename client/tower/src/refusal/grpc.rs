//! The refusal of a gRPC request: `RESOURCE_EXHAUSTED` with details, and the time to retry for clients that retry by
//! themselves (gRFC A6).

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use plimsoll_core::decision::Reason;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::{ERROR_DOMAIN, RATE_LIMIT_REASON, RefusalFormat, RefusalOf, words};

const RETRY_PUSHBACK: &str = "grpc-retry-pushback-ms";
/// The pushback that keeps a client from retrying.
const NO_RETRY: i32 = -1;

/// Makes a trailers-only response, with the status among the headers and no body.
pub(super) fn response(format: &RefusalFormat, refused: &RefusalOf<'_>) -> Response<Bytes> {
    let reason = refused.reason();
    let mut details = ErrorDetails::new();
    // Google's rules for error reasons ask for capitals.
    details.set_error_info(
        reason.as_str().to_ascii_uppercase(),
        ERROR_DOMAIN,
        facts(refused),
    );
    // A store that does not answer is no failure of the caller's quota.
    if reason != Reason::QuotaDegraded {
        details.add_quota_failure_violation(subject(refused), refused.detail());
    }
    let mut metadata = MetadataMap::new();
    let pushback = if reason == Reason::TenantQuotaExceeded {
        NO_RETRY
    } else {
        let millis = refused.wait_millis();
        details.set_retry_info(Some(Duration::from_millis(millis)));
        i32::try_from(millis).unwrap_or(i32::MAX)
    };
    metadata.insert(RETRY_PUSHBACK, pushback.into());
    if format.headers.has_x() {
        metadata.insert(
            RATE_LIMIT_REASON,
            MetadataValue::from_static(reason.as_str()),
        );
    }
    let message = words::title(reason);
    Status::with_error_details_and_metadata(Code::ResourceExhausted, message, details, metadata)
        .into_http()
}

/// Returns what the violation is about: `quota:NAME` for an exact quota, else `bucket:NAME`.
fn subject(refused: &RefusalOf<'_>) -> String {
    match (refused.used_up(), refused.bucket) {
        (Some(quota), _) => format!("quota:{}", quota.name),
        (None, Some(bucket)) => format!("bucket:{bucket}"),
        (None, None) => String::new(),
    }
}

/// Returns the metadata of the `ErrorInfo`: the bucket, its limit in requests/s, and the exact quota with the requests
/// of a full one, as far as they are known.
fn facts(refused: &RefusalOf<'_>) -> HashMap<String, String> {
    let quota = refused.used_up();
    let facts = [
        ("bucket", refused.bucket.map(str::to_owned)),
        ("limit", refused.exceeded().map(|limit| limit.to_string())),
        ("quota", quota.map(|quota| quota.name.to_string())),
        ("max", quota.map(|quota| quota.rate.max().to_string())),
    ];
    let known = facts.into_iter();
    known
        .filter_map(|(name, fact)| Some((name.to_owned(), fact?)))
        .collect()
}
