//! The refusal of an HTTP request: a problem document (RFC 9457), `Retry-After` and the fields about limits.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response};
use plimsoll_core::decision::Reason;
use plimsoll_core::directive::LimitOwner;
use serde::Serialize;

use super::words::{self, ABOUT_BLANK};
use super::{RefusalFormat, RefusalOf, limit_fields};

#[derive(Serialize)]
struct Problem<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(rename = "violated-policies", skip_serializing_if = "Option::is_none")]
    violated_policies: Option<[&'a str; 1]>,
    reason: &'a str,
    /// The entry of the policy that sets the limit of the tenant.
    #[serde(rename = "limit-of", skip_serializing_if = "Option::is_none")]
    limit_of: Option<&'static str>,
}

pub(super) fn response(format: &RefusalFormat, refused: &RefusalOf<'_>) -> Response<Bytes> {
    let (reason, status) = (refused.reason(), format.status);
    let default = words::problem_type(reason);
    let phrase = status.canonical_reason().unwrap_or(words::title(reason));
    let (r#type, title) = match format.problem_type.as_deref() {
        None => (default.uri, default.title.unwrap_or(phrase)),
        Some(ABOUT_BLANK) => (ABOUT_BLANK, phrase),
        Some(own) => (own, words::title(reason)),
    };
    let problem = Problem {
        r#type,
        title,
        status: status.as_u16(),
        detail: refused.detail(),
        violated_policies: violated(refused).map(|policy| [policy]),
        reason: reason.as_str(),
        limit_of: refused.limit_owner().map(LimitOwner::as_str),
    };
    // Texts and numbers always serialize; without a body, the headers would still be complete.
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    headers.insert(RETRY_AFTER, HeaderValue::from(refused.wait_seconds()));
    limit_fields::insert(headers, format.headers, refused);
    response
}

/// Returns the name of the violated policy: the quota that is used up, as the field `RateLimit-Policy` names it, or
/// else the bucket. A quota that cannot be checked is not known to be exceeded.
fn violated<'a>(refused: &'a RefusalOf<'_>) -> Option<&'a str> {
    match refused.used_up() {
        Some(quota) => Some(quota.name.as_str()),
        None => refused
            .bucket
            .filter(|_| refused.reason() != Reason::QuotaDegraded),
    }
}
