//! The refusal of an HTTP request: a problem document (RFC 9457), `Retry-After` and the fields about limits.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, Uri};
use plimsoll_core::decision::Reason;
use serde::Serialize;

use super::words::{self, ABOUT_BLANK};
use super::{PATH_BYTES_MAX, RefusalFormat, RefusalOf, limit_fields};

/// An RFC 9457 problem document.
#[derive(Serialize)]
struct Problem<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<Cow<'a, str>>,
    #[serde(rename = "violated-policies", skip_serializing_if = "Option::is_none")]
    violated_policies: Option<[&'a str; 1]>,
    reason: &'a str,
}

/// Makes the response to a request for a URI, if that is known.
pub(super) fn response(
    format: &RefusalFormat,
    refused: &RefusalOf<'_>,
    uri: Option<&Uri>,
) -> Response<Bytes> {
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
        detail: words::detail(reason),
        instance: uri.and_then(instance),
        violated_policies: violated(refused).map(|policy| [policy]),
        reason: reason.as_str(),
    };
    // Texts and numbers always serialize; without a body, the headers would still be complete.
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(RETRY_AFTER, HeaderValue::from(refused.wait_seconds()));
    limit_fields::insert(headers, format.headers, refused);
    response
}

/// Returns the name of the violated policy: the quota that is used up, as the field `RateLimit-Policy` names it, or else
/// the bucket. A quota that cannot be checked is not known to be exceeded.
fn violated<'a>(refused: &'a RefusalOf<'_>) -> Option<&'a str> {
    match refused.used_up() {
        Some(quota) => Some(quota.name.as_str()),
        None => refused.bucket.filter(|_| refused.reason() != Reason::QuotaDegraded),
    }
}

/// Returns the path of a request as a relative reference (RFC 3986), unless it is too long. Callers choose it: bytes
/// that a reference cannot have are escaped, and a path of two slashes is kept from naming a host.
fn instance(uri: &Uri) -> Option<Cow<'_, str>> {
    let path = uri.path();
    if path.is_empty() || path.len() > PATH_BYTES_MAX {
        return None;
    }
    if path.starts_with('/') && !path.starts_with("//") && is_reference(path.as_bytes()) {
        return Some(Cow::Borrowed(path));
    }
    let mut escaped = String::from(if path.starts_with("//") || !path.starts_with('/') { "/." } else { "" });
    for (at, byte) in path.bytes().enumerate() {
        match byte {
            b'%' if is_escape(&path.as_bytes()[at..]) => escaped.push('%'),
            _ if is_plain(byte) => escaped.push(char::from(byte)),
            _ => escaped.extend(['%', hex(byte >> 4), hex(byte & 15)]),
        }
    }
    Some(Cow::Owned(escaped))
}

fn is_reference(path: &[u8]) -> bool {
    path.iter().enumerate().all(|(at, byte)| is_plain(*byte) || is_escape(path.get(at..).unwrap_or_default()))
}

/// Returns true for a byte that stands for itself in the path of a reference.
const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'/' | b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\''..=b',' | b':' | b';' | b'=' | b'@'
        )
}

/// Returns true if the bytes begin with an escape, such as `%2F`.
fn is_escape(bytes: &[u8]) -> bool {
    matches!(bytes, [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}

/// Returns the digit of a number below 16.
fn hex(digit: u8) -> char {
    char::from_digit(u32::from(digit), 16).unwrap_or('0').to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_is_a_reference_within_the_service() {
        for (path, expected) in [
            ("/orders/7?force=1", Some("/orders/7")),
            ("/%2Forders/a;b=c,d:e@f", Some("/%2Forders/a;b=c,d:e@f")),
            ("//evil.example/login", Some("/.//evil.example/login")),
            ("/a{b}|c\"", Some("/a%7Bb%7D%7Cc%22")),
            ("/100%/%zz", Some("/100%25/%25zz")),
            ("*", Some("/.*")),
            ("example.com:443", None),
        ] {
            let uri: Uri = path.parse().unwrap();
            assert_eq!(instance(&uri).as_deref(), expected, "{path}");
        }
        let long = |bytes| format!("/{}", "x".repeat(bytes - 1)).parse::<Uri>().unwrap();
        assert!(instance(&long(PATH_BYTES_MAX)).is_some() && instance(&long(PATH_BYTES_MAX + 1)).is_none());
    }
}
