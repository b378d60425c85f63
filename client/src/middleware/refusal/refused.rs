//! A refused request with everything that its response may name.

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};
use plimsoll_core::decision::{Reason, Refusal};

use super::{Format, grpc, problem};
use crate::BucketHandle;
use crate::middleware::Head;

/// A refused request, for a service with [responses of its own](crate::middleware::LoadShedLayer::refuse_with).
#[derive(Clone, Copy)]
pub struct Refused<'a> {
    pub(super) request: Head<'a>,
    pub(super) refusal: Refusal,
    pub(super) bucket: Option<&'a BucketHandle>,
    pub(super) format: &'a Format,
    /// The time of the refusal.
    pub(super) at: SystemTime,
}

impl<'a> Refused<'a> {
    /// Returns the head of the request.
    #[must_use]
    pub const fn request(&self) -> Head<'a> {
        self.request
    }

    /// Returns the reason.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.refusal.reason()
    }

    /// Returns the time after which the caller may retry. For a quota that is used up it is the time until the quota is
    /// renewed.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        self.refusal.retry_after()
    }

    /// Returns the name of the bucket that refused the request; `None` where an [`Extract`](crate::middleware::Extract)
    /// returned a verdict alone.
    #[must_use]
    pub fn bucket(&self) -> Option<&'a str> {
        self.bucket.map(BucketHandle::name)
    }

    /// Returns the limit that the request exceeded, in requests/s of the bucket; `None` while it is unknown, and for
    /// reasons that concern another limit, such as that of a tenant.
    #[must_use]
    pub fn limit(&self) -> Option<f64> {
        match self.reason() {
            Reason::ClusterOverload | Reason::BurstGuard | Reason::ColdStart => self.bucket?.limit(),
            Reason::TenantLimit | Reason::TenantQuotaExceeded | Reason::QuotaDegraded => None,
        }
    }

    /// Returns true if the caller expects a gRPC status: the content type of the request begins with
    /// `application/grpc`.
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        let content_type = self.request.headers.get(CONTENT_TYPE);
        content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
    }

    /// Returns the response without a closure, which a closure may adapt: a problem document, or a gRPC status.
    #[must_use]
    pub fn response(&self) -> Response<Bytes> {
        if self.is_grpc() { grpc::response(self) } else { problem::response(self) }
    }

    /// Returns the HTTP status.
    pub(super) const fn status(&self) -> StatusCode {
        self.format.status
    }

    /// Returns the wait in whole seconds, rounded up to at least 1, so that no caller retries too early.
    pub(super) fn wait_seconds(&self) -> u64 {
        whole(self.retry_after(), Duration::from_secs(1))
    }

    /// Returns the wait in whole milliseconds, rounded up.
    pub(super) fn wait_millis(&self) -> u64 {
        whole(self.retry_after(), Duration::from_millis(1))
    }
}

impl fmt::Debug for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut refused = f.debug_struct("Refused");
        refused.field("bucket", &self.bucket()).field("refusal", &self.refusal).finish_non_exhaustive()
    }
}

/// Rounds up to whole units, at least one.
fn whole(wait: Duration, unit: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(unit.as_nanos().max(1))).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_rounded_up_to_whole_units() {
        for (wait, seconds, millis) in [
            (Duration::ZERO, 1, 1),
            (Duration::from_nanos(1), 1, 1),
            (Duration::from_secs(1), 1, 1_000),
            (Duration::from_micros(1_000_001), 2, 1_001),
            (Duration::from_millis(2_999), 3, 2_999),
            (Duration::from_secs(u64::MAX), u64::MAX, u64::MAX),
        ] {
            let units = [Duration::from_secs(1), Duration::from_millis(1)].map(|unit| whole(wait, unit));
            assert_eq!(units, [seconds, millis], "{wait:?}");
        }
    }
}
