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

use super::{ERROR_DOMAIN, RATE_LIMIT_REASON, Refused, words};

const RETRY_PUSHBACK: &str = "grpc-retry-pushback-ms";
/// The pushback that keeps a client from retrying.
const NO_RETRY: i32 = -1;

/// Makes a trailers-only response, with the status among the headers and no body.
pub(super) fn response(refused: &Refused<'_>) -> Response<Bytes> {
    let reason = refused.reason();
    let mut details = ErrorDetails::new();
    // Google's rules for error reasons ask for capitals.
    details
        .set_error_info(reason.as_str().to_ascii_uppercase(), ERROR_DOMAIN, facts(refused))
        .add_quota_failure_violation(
            refused.bucket().map(|bucket| format!("bucket:{bucket}")).unwrap_or_default(),
            words::detail(reason),
        );
    let mut metadata = MetadataMap::new();
    let pushback = if reason == Reason::TenantQuotaExceeded {
        NO_RETRY
    } else {
        let millis = refused.wait_millis();
        details.set_retry_info(Some(Duration::from_millis(millis)));
        i32::try_from(millis).unwrap_or(i32::MAX)
    };
    metadata.insert(RETRY_PUSHBACK, pushback.into());
    if refused.format.headers.has_x() {
        metadata.insert(RATE_LIMIT_REASON, MetadataValue::from_static(reason.as_str()));
    }
    let message = words::title(reason);
    Status::with_error_details_and_metadata(Code::ResourceExhausted, message, details, metadata).into_http()
}

/// Returns the metadata of the `ErrorInfo`: the bucket, and its limit in requests/s, as far as they are known.
fn facts(refused: &Refused<'_>) -> HashMap<String, String> {
    let bucket = refused.bucket().map(|bucket| ("bucket".to_owned(), bucket.to_owned()));
    let limit = refused.limit().map(|limit| ("limit".to_owned(), limit.to_string()));
    bucket.into_iter().chain(limit).collect()
}
