//! The outcome of a request: the HTTP status, or the gRPC status, which may be sent with the end of the body.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, Response, StatusCode};
use plimsoll_client::internals::{Ending, GRPC_UNKNOWN, Recorders};

static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC: &[u8] = b"application/grpc";

/// The outcome of an admitted request that the end of its body decides, counted exactly once. A body that is dropped
/// before its end counts as aborted.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Empty if the head showed the outcome, once it is counted, and for a response that is not recorded.
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

/// Returns the gRPC status in headers or trailers, if any. A status other than a number of one or two digits is
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
        // The HTTP status, the content type, `grpc-status`, and the ending. A header of that name
        // means nothing outside of gRPC.
        const CASES: &str = r#"
            200 | -                              | -   | http 200
            503 | text/plain                     | -   | http 503
            200 | text/plain                     | 13  | http 200
            200 | application/grpc               | -   | trailers
            200 | application/grpc+proto         | -   | trailers
            200 | application/grpc;charset=utf-8 | -   | trailers
            200 | application/grpc               | 0   | grpc 0
            200 | application/grpc               | 14  | grpc 14
            200 | application/grpc               | 05  | grpc 5
            200 | application/grpc               | 99  | grpc 99
            200 | application/grpc               | ""  | grpc 2
            200 | application/grpc               | -1  | grpc 2
            200 | application/grpc               | 100 | grpc 2
            502 | application/grpc               | -   | http 502
            200 | application/grpc-web+proto     | -   | http 200
            200 | application/grpcish            | 3   | http 200
        "#;
        for line in CASES.trim().lines() {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let [status, content_type, grpc, expected] = cells[..] else {
                panic!("{line}");
            };
            let mut response = Response::builder().status(status);
            for (name, value) in [("content-type", content_type), ("grpc-status", grpc)] {
                if value != "-" {
                    response = response.header(name, value.trim_matches('"'));
                }
            }
            let ending = match ending_of(&response.body(()).unwrap()) {
                Some(Ending::Status(status)) => format!("http {status}"),
                Some(Ending::Grpc(code)) => format!("grpc {code}"),
                Some(other) => panic!("{other:?}"),
                None => "trailers".to_owned(),
            };
            assert_eq!(ending, expected, "{line}");
        }
    }
}
