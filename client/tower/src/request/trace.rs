//! The trace of a request.

use http::HeaderName;
use plimsoll_core::decision::trace::TraceId;

use super::Head;

static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Returns the trace of an HTTP or gRPC request by W3C Trace Context; `None` without a header, for a malformed one, and
/// for several.
pub(crate) fn trace_of(request: Head<'_>) -> Option<TraceId> {
    TraceId::of_traceparent(request.header(&TRACEPARENT)?.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderValue, Request};

    #[test]
    fn only_a_single_trace_header_counts() {
        const ONE: &[u8] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        const OTHER: &[u8] = b"00-00000000000000000000000000000001-00f067aa0ba902b7-01";
        type Headers<'a> = &'a [(&'a str, &'a [u8])];
        let cases: [(Headers<'_>, Option<u128>); 8] = [
            (
                &[("traceparent", ONE)],
                Some(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736),
            ),
            (&[("TraceParent", OTHER)], Some(1)),
            (
                &[("traceparent", ONE), ("tracestate", b"a=b")],
                Some(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736),
            ),
            (&[], None),
            (&[("traceparent", ONE), ("traceparent", ONE)], None),
            (&[("traceparent", ONE), ("Traceparent", OTHER)], None),
            (&[("traceparent", b"\xff")], None),
            (&[("x-traceparent", ONE)], None),
        ];
        for (headers, id) in cases {
            let mut request = Request::new(());
            for (name, value) in headers {
                let name = HeaderName::try_from(*name).unwrap();
                request
                    .headers_mut()
                    .append(name, HeaderValue::from_bytes(value).unwrap());
            }
            assert_eq!(
                trace_of(Head::of(&request)),
                id.and_then(TraceId::new),
                "{headers:?}"
            );
        }
    }
}
