//! The outcome of a request: the HTTP status, or the gRPC status, which may come with the end of the body.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, Response, StatusCode};
use plimsoll_client::internals::{Ending, GRPC_UNKNOWN, Recorders};

static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC: &[u8] = b"application/grpc";

/// The outcome of an admitted request that the end of its body decides, counted exactly once. A body that is dropped
/// before its end counts as aborted.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Empty once the outcome is counted, or for a response that is not recorded.
    recorders: Recorders,
}

impl Outcome {
    pub(crate) const fn pending(recorders: Recorders) -> Self {
        Self { recorders }
    }

    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        !self.recorders.is_empty()
    }

    #[inline]
    pub(super) fn settle(&mut self, ending: Ending) {
        for recorder in self.recorders.drain(..) {
            recorder.count(ending);
        }
    }
}

impl Drop for Outcome {
    #[inline]
    fn drop(&mut self) {
        self.settle(Ending::Aborted);
    }
}

/// Returns the ending that the head of a response shows. `None` for a gRPC response with its status
/// in trailers.
#[inline]
pub(crate) fn ending_of<R>(response: &Response<R>) -> Option<Ending> {
    let status = response.status();
    if !is_grpc(response.headers()) {
        return Some(Ending::Status(status.as_u16()));
    }
    match grpc_status(response.headers()) {
        Some(code) => Some(Ending::Grpc(code)),
        None if status == StatusCode::OK => None,
        None => Some(Ending::Status(status.as_u16())),
    }
}

/// Returns true for gRPC with any encoding of messages. gRPC-Web is other content: its trailers are
/// a part of the body.
#[inline]
fn is_grpc(headers: &HeaderMap) -> bool {
    let after = |value: &[u8]| value.strip_prefix(GRPC).map(|rest| rest.first().copied());
    let content_type = headers
        .get(CONTENT_TYPE)
        .and_then(|value| after(value.as_bytes()));
    matches!(content_type, Some(None | Some(b'+' | b';')))
}

/// Returns the gRPC status in headers or trailers. A status other than a number below 100 is
/// UNKNOWN, as callers read it.
pub(super) fn grpc_status(headers: &HeaderMap) -> Option<u8> {
    let digit = |byte: u8| byte.is_ascii_digit().then(|| byte - b'0');
    Some(match headers.get(&GRPC_STATUS)?.as_bytes() {
        [ones] => digit(*ones).unwrap_or(GRPC_UNKNOWN),
        [tens, ones] => digit(*tens)
            .zip(digit(*ones))
            .map_or(GRPC_UNKNOWN, |(tens, ones)| tens * 10 + ones),
        _ => GRPC_UNKNOWN,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_shows_the_ending_unless_trailers_do() {
        /// The HTTP status, the content type, `grpc-status`, and the ending.
        type Case = (
            u16,
            Option<&'static str>,
            Option<&'static str>,
            Option<Ending>,
        );
        let cases: [Case; 16] = [
            (200, None, None, Some(Ending::Status(200))),
            (503, Some("text/plain"), None, Some(Ending::Status(503))),
            // A header of this name means nothing outside of gRPC.
            (
                200,
                Some("text/plain"),
                Some("13"),
                Some(Ending::Status(200)),
            ),
            (200, Some("application/grpc"), None, None),
            (200, Some("application/grpc+proto"), None, None),
            (200, Some("application/grpc;charset=utf-8"), None, None),
            (
                200,
                Some("application/grpc"),
                Some("0"),
                Some(Ending::Grpc(0)),
            ),
            (
                200,
                Some("application/grpc"),
                Some("14"),
                Some(Ending::Grpc(14)),
            ),
            (
                200,
                Some("application/grpc"),
                Some("05"),
                Some(Ending::Grpc(5)),
            ),
            (
                200,
                Some("application/grpc"),
                Some("99"),
                Some(Ending::Grpc(99)),
            ),
            (
                200,
                Some("application/grpc"),
                Some(""),
                Some(Ending::Grpc(GRPC_UNKNOWN)),
            ),
            (
                200,
                Some("application/grpc"),
                Some("-1"),
                Some(Ending::Grpc(GRPC_UNKNOWN)),
            ),
            (
                200,
                Some("application/grpc"),
                Some("100"),
                Some(Ending::Grpc(GRPC_UNKNOWN)),
            ),
            (
                502,
                Some("application/grpc"),
                None,
                Some(Ending::Status(502)),
            ),
            (
                200,
                Some("application/grpc-web+proto"),
                None,
                Some(Ending::Status(200)),
            ),
            (
                200,
                Some("application/grpcish"),
                Some("3"),
                Some(Ending::Status(200)),
            ),
        ];
        for (status, content_type, grpc, ending) in cases {
            let mut response = Response::builder().status(status);
            let headers = [("content-type", content_type), ("grpc-status", grpc)];
            for (name, value) in headers
                .into_iter()
                .filter_map(|(name, value)| Some((name, value?)))
            {
                response = response.header(name, value);
            }
            let response = response.body(()).unwrap();
            assert_eq!(
                ending_of(&response),
                ending,
                "{status}, {content_type:?}, {grpc:?}"
            );
        }
    }
}
