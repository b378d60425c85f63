//! The original request, as a proxy describes it in headers, for rules that compare method and
//! path.
//!
//! Callers choose the path. Bytes that [`Uri`] rejects are escaped and the path is not dropped, so
//! that no spelling of a path keeps a rule from matching.

use std::borrow::Cow;

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use plimsoll_tower::Head;

use crate::http::counts::Mistake;

/// Maximum length of a compared path in bytes: the maximum of a [`Uri`]. A longer path is cut.
const PATH_BYTES_MAX: usize = u16::MAX as usize - 1;
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    method: &'static str,
    uri: &'static str,
}

impl Names {
    pub(super) const CADDY_AND_TRAEFIK: Self = Self {
        method: "x-forwarded-method",
        uri: "x-forwarded-uri",
    };
    /// Headers that the shipped nginx configuration sends.
    pub(super) const NGINX: Self = Self {
        method: "x-original-method",
        uri: "x-original-uri",
    };
}

#[derive(Debug)]
pub(super) struct Original {
    pub(super) request: Request<()>,
    pub(super) mistakes: [Option<Mistake>; 2],
}

impl Original {
    /// Replaces method and URI of the proxy's request by the original ones. Without a usable method
    /// the proxy's stays; without a usable URI no rule with a path matches.
    pub(super) fn of(mut head: Parts, names: Names) -> Self {
        let method = only(&head.headers, names.method).and_then(method_of);
        let uri = only(&head.headers, names.uri).and_then(|value| uri_of(value.as_bytes()));
        let mistakes = [
            method.is_none().then_some(Mistake::OriginalMethod),
            uri.is_none().then_some(Mistake::OriginalUri),
        ];
        head.method = method.unwrap_or(head.method);
        head.uri = uri.unwrap_or_else(|| Uri::from_static("*"));
        Self {
            request: Request::from_parts(head, ()),
            mistakes,
        }
    }
}

/// Returns true for a CORS preflight, by the original method, or the proxy's own without a usable one.
pub(super) fn is_preflight(head: Head<'_>, names: Names) -> bool {
    let headers = head.headers;
    if !headers.contains_key(ORIGIN) || !headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
        return false;
    }
    let method = only(headers, names.method).and_then(method_of);
    method.as_ref().unwrap_or(head.method) == Method::OPTIONS
}

fn only<'a>(headers: &'a http::HeaderMap, name: &'static str) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(HeaderName::from_static(name)).iter();
    values.next().filter(|_| values.next().is_none())
}

fn method_of(value: &HeaderValue) -> Option<Method> {
    Method::from_bytes(value.as_bytes()).ok()
}

/// Returns the path of a target, without query and fragment; `None` if the target has no path.
fn uri_of(target: &[u8]) -> Option<Uri> {
    let path = match target.first() {
        Some(b'/') => target,
        // nginx leaves this of `http://shop.example?x`, and serves `/`.
        Some(b'?' | b'#') => b"/",
        _ => path_of_absolute(target)?,
    };
    let end = path
        .iter()
        .position(|byte| matches!(byte, b'?' | b'#'))
        .unwrap_or(path.len());
    let path = path.get(..end)?;
    let mut escaped: Cow<'_, str> = percent_encode(path, ESCAPED).into();
    if escaped.len() > PATH_BYTES_MAX {
        escaped = replaced(path).into();
    }
    let path = escaped.get(..PATH_BYTES_MAX).unwrap_or(&escaped);
    PathAndQuery::try_from(path).ok().map(Uri::from)
}

/// Replaces what no rule has use for byte by byte, so that the path does not grow: escaping triples bytes, and would move
/// its end beyond the cut, where dots may lead to another path.
fn replaced(path: &[u8]) -> String {
    let is_kept = |byte: u8| byte.is_ascii_alphanumeric() || b"/.;%\\-_~:@,=+".contains(&byte);
    let each = path.iter().map(|byte| match is_kept(*byte) {
        true => char::from(*byte),
        false => '_',
    });
    each.collect()
}

fn path_of_absolute(target: &[u8]) -> Option<&[u8]> {
    let scheme = target.windows(3).position(|window| window == b"://")?;
    let is_scheme = scheme > 0 && target.get(..scheme)?.iter().all(u8::is_ascii_alphanumeric);
    let rest = target.get(scheme + 3..).filter(|_| is_scheme)?;
    let path = rest
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?' | b'#'))
        .unwrap_or(rest.len());
    Some(
        rest.get(path..)
            .filter(|path| path.first() == Some(&b'/'))
            .unwrap_or(b"/"),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(target: &[u8]) -> Option<String> {
        uri_of(target).map(|uri| uri.to_string())
    }

    #[test]
    fn target_is_read_in_every_form() {
        let [long, plain] = ["<", "_"].map(|text| format!("/{}/..\\é", text.repeat(30_000)));
        for (target, expected) in [
            (&b"/orders/7?force=1"[..], Some("/orders/7")),
            (b"/orders#top", Some("/orders")),
            (b"/a?b?c#d", Some("/a")),
            (b"/", Some("/")),
            (b"//evil.example/a", Some("//evil.example/a")),
            (b"/caf\xc3\xa9", Some("/caf%C3%A9")),
            (b"/\xff\xfe", Some("/%FF%FE")),
            (
                b"/a<b>\"c{d}`e^f|g\\h",
                Some("/a%3Cb%3E%22c%7Bd%7D%60e%5Ef%7Cg%5Ch"),
            ),
            (b"/a b\tc", Some("/a%20b%09c")),
            (b"/100%/%zz", Some("/100%/%zz")),
            (b"http://shop.example/orders?x", Some("/orders")),
            (b"HTTPS://shop.example:8443", Some("/")),
            (b"http://shop.example?x=/orders", Some("/")),
            (b"http://user@[::1]:80/a", Some("/a")),
            (b"", None),
            (b"*", None),
            (b"orders", None),
            (b"?x=/orders", Some("/")),
            (b"#x", Some("/")),
            (b"://a/b", None),
            (b"a/b://c/d", None),
            (b"shop.example:443", None),
            (long.as_bytes(), Some(&plain.replace('é', "__"))),
        ] {
            assert_eq!(
                path(target).as_deref(),
                expected,
                "{}",
                String::from_utf8_lossy(target)
            );
        }
    }

    proptest! {
        /// Otherwise a caller could choose a spelling that no rule with a path matches.
        #[test]
        fn every_path_is_read(path in proptest::collection::vec(any::<u8>(), 0..200)) {
            let target = [b"/".as_slice(), &path].concat();
            prop_assert!(uri_of(&target).is_some());
        }

        #[test]
        fn path_decodes_to_what_was_sent(path in "/[^?#%]{0,50}") {
            let uri = uri_of(path.as_bytes()).unwrap();
            let mut decoded = Vec::new();
            let mut bytes = uri.path().bytes();
            while let Some(byte) = bytes.next() {
                decoded.push(if byte == b'%' {
                    let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                } else {
                    byte
                });
            }
            prop_assert_eq!(decoded, path.as_bytes());
        }
    }

    #[test]
    fn header_counts_only_once() {
        let request = |values: &[&str]| {
            let request = values
                .iter()
                .fold(Request::get("/check"), |request, value| {
                    request
                        .header("x-forwarded-uri", *value)
                        .header("x-forwarded-method", "PUT")
                });
            Original::of(
                request.body(()).unwrap().into_parts().0,
                Names::CADDY_AND_TRAEFIK,
            )
        };
        let (uri, method) = (Some(Mistake::OriginalUri), Some(Mistake::OriginalMethod));
        for (values, expected, mistakes) in [
            (&["/a"][..], (Method::PUT, "/a"), [None, None]),
            (&[], (Method::GET, "*"), [method, uri]),
            (&["/a", "/a"], (Method::GET, "*"), [method, uri]),
            (&["a"], (Method::PUT, "*"), [None, uri]),
        ] {
            let original = request(values);
            let found = (
                original.request.method().clone(),
                original.request.uri().to_string(),
            );
            assert_eq!((found.0, found.1.as_str()), expected, "{values:?}");
            assert_eq!(original.mistakes, mistakes, "{values:?}");
        }
    }
}
