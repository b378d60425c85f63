//! A refused request with everything that its response may name.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;
use http_body_util::Full;
use plimsoll_core::decision::Reason;
use plimsoll_core::quota::Quota;

use super::{RefusalFormat, RefusalOf};
use crate::Head;

/// A refused request, for a service with
/// [its own responses](crate::PlimsollLayer::refuse_with).
#[derive(Clone, Copy)]
pub struct Refused<'a> {
    pub(super) request: Head<'a>,
    facts: RefusalOf<'a>,
    format: &'a RefusalFormat,
}

impl<'a> Refused<'a> {
    pub(crate) const fn new(
        format: &'a RefusalFormat,
        request: Head<'a>,
        facts: RefusalOf<'a>,
    ) -> Self {
        Self {
            request,
            facts,
            format,
        }
    }

    /// Returns the head of the request.
    pub const fn request(&self) -> Head<'a> {
        self.request
    }

    /// Returns the reason.
    pub fn reason(&self) -> Reason {
        self.facts.reason()
    }

    /// Returns the time until the caller may retry. For a used-up quota it is the time until the
    /// quota is renewed.
    pub fn retry_after(&self) -> Duration {
        self.facts.refusal.retry_after()
    }

    /// Returns the name of the bucket that refused the request; `None` for a bucket that the
    /// service has not declared.
    pub fn bucket(&self) -> Option<&'a str> {
        self.facts.bucket
    }

    /// Returns the limit that the request exceeded, of the bucket or the tenant, in requests/s; `None` while it is unknown,
    /// and for exact quotas.
    pub fn limit(&self) -> Option<f64> {
        self.facts.exceeded()
    }

    /// Returns the exact quota that is used up or cannot be checked; `None` for other reasons.
    pub fn quota(&self) -> Option<&'a Quota> {
        self.facts.quota
    }

    /// Returns true if the caller expects a gRPC status: the content type of the request begins with
    /// `application/grpc`.
    pub fn is_grpc(&self) -> bool {
        let content_type = self.request.headers.get(CONTENT_TYPE);
        content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
    }

    /// Returns the response that the layer sends unless a closure makes another: a problem document, or a gRPC status.
    pub fn response(&self) -> Response<Full<Bytes>> {
        self.bytes().map(Full::new)
    }

    pub(super) fn bytes(&self) -> Response<Bytes> {
        if self.is_grpc() {
            self.format.grpc(&self.facts)
        } else {
            self.format.http(&self.facts)
        }
    }
}

impl fmt::Debug for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut refused = f.debug_struct("Refused");
        refused
            .field("bucket", &self.bucket())
            .field("refusal", &self.facts.refusal)
            .finish_non_exhaustive()
    }
}
