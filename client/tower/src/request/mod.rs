//! The head of a request.

pub(super) mod trace;

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, AsHeaderName, ORIGIN};
use http::{Extensions, HeaderMap, Method, Request, Uri};

/// The head of a request, borrowed: all that decides about it, and not its body.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Head<'a> {
    /// The method.
    pub method: &'a Method,
    /// The URI.
    pub uri: &'a Uri,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The extensions, such as the extensions of an authentication layer.
    pub extensions: &'a Extensions,
}

impl<'a> Head<'a> {
    /// Borrows the head of a request.
    pub fn of<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    /// Returns the value of a header that occurs exactly once and is UTF-8. Several values would be
    /// ambiguous, so that there is none.
    pub fn header(self, name: impl AsHeaderName + Copy) -> Option<&'a str> {
        let value = self.headers.get(name)?;
        // Few requests repeat any name, so that most need one search.
        let has_repeated_names = self.headers.len() > self.headers.keys_len();
        if has_repeated_names && self.headers.get_all(name).iter().nth(1).is_some() {
            return None;
        }
        std::str::from_utf8(value.as_bytes()).ok()
    }

    /// Returns true if the caller says that it has sent the request before: by `x-plimsoll-attempt`, by
    /// `grpc-previous-rpc-attempts` of gRPC libraries, or by `x-envoy-attempt-count`.
    pub fn is_retried(self) -> bool {
        // One pass: a search for each name would hash all of its bytes.
        let mut all = self.headers.iter();
        all.any(|(name, value)| Self::marks_retry(name.as_str(), || value.to_str().ok()))
    }

    /// Returns true if a header says that the request was sent before. The value is read only of headers that can.
    #[doc(hidden)]
    pub fn marks_retry<'v>(name: &str, value: impl FnOnce() -> Option<&'v str>) -> bool {
        let first = match name {
            "x-plimsoll-attempt" | "x-envoy-attempt-count" => 1,
            "grpc-previous-rpc-attempts" => 0,
            _ => return false,
        };
        let number = value().and_then(|it| it.parse::<u32>().ok());
        number.is_some_and(|number| number > first)
    }

    /// Returns true for a CORS preflight, which a browser sends on its own (Fetch Standard, CORS-preflight fetch).
    #[inline]
    pub(super) fn is_preflight(self) -> bool {
        *self.method == Method::OPTIONS
            && self.headers.contains_key(ORIGIN)
            && self.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_has_a_value_only_once() {
        for (values, expected) in [
            (&[&b"acme"[..]][..], Some("acme")),
            (&[], None),
            (&[b"acme", b"acme"], None),
            (&[b"caf\xc3\xa9"], Some("caf\u{e9}")),
            (&[b"caf\xe9"], None),
            (&[b""], Some("")),
        ] {
            let mut request = Request::new(());
            request
                .headers_mut()
                .append("x-other", http::HeaderValue::from_static("x"));
            for value in values {
                request
                    .headers_mut()
                    .append("x-tenant", http::HeaderValue::from_bytes(value).unwrap());
            }
            assert_eq!(
                Head::of(&request).header("X-Tenant"),
                expected,
                "{values:?}"
            );
            assert_eq!(
                Head::of(&request).header("x tenant"),
                None,
                "no name of a header"
            );
        }
    }

    #[test]
    fn marks_of_retries_are_read() {
        for (name, value, expected) in [
            ("x-plimsoll-attempt", "1", false),
            ("x-plimsoll-attempt", "2", true),
            ("x-envoy-attempt-count", "1", false),
            ("x-envoy-attempt-count", "3", true),
            ("grpc-previous-rpc-attempts", "0", false),
            ("grpc-previous-rpc-attempts", "1", true),
            ("x-plimsoll-attempt", "-2", false),
            ("x-plimsoll-attempt", "99999999999999999999", false),
            ("retry-after", "2", false),
        ] {
            let request = Request::builder().header(name, value).body(()).unwrap();
            assert_eq!(Head::of(&request).is_retried(), expected, "{name}: {value}");
        }
    }

    #[test]
    fn preflight_has_the_method_and_both_headers() {
        for (method, headers, expected) in [
            (
                Method::OPTIONS,
                &["origin", "access-control-request-method"][..],
                true,
            ),
            (Method::OPTIONS, &["origin"], false),
            (Method::OPTIONS, &["access-control-request-method"], false),
            (
                Method::GET,
                &["origin", "access-control-request-method"],
                false,
            ),
        ] {
            let request = Request::builder().method(method);
            let request = headers
                .iter()
                .fold(request, |request, name| request.header(*name, "x"));
            assert_eq!(
                Head::of(&request.body(()).unwrap()).is_preflight(),
                expected,
                "{headers:?}"
            );
        }
    }
}
