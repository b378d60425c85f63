//! The format of refusals: the settings of a layer, or of a caller that makes refusals by itself.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Response, StatusCode};
use plimsoll_client::TenantLimit;
use plimsoll_core::decision::{Reason, Refusal};
use plimsoll_core::directive::LimitOwner;
use plimsoll_core::quota::Quota;

use super::{Refused, grpc, problem, words};

/// The families of header fields about limits in refusals. `Retry-After` is in every refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RateLimitHeaders {
    /// Both families. The default.
    #[default]
    Both,
    /// `RateLimit` and `RateLimit-Policy`, structured fields of the IETF's draft.
    Ietf,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset` and `-Reason`, which most clients know.
    XRateLimit,
    /// Neither.
    None,
}

impl RateLimitHeaders {
    pub(super) const fn has_ietf(self) -> bool {
        matches!(self, Self::Both | Self::Ietf)
    }

    pub(super) const fn has_x(self) -> bool {
        matches!(self, Self::Both | Self::XRateLimit)
    }
}

/// The form of the responses to refused requests, for a process that makes them by itself, because
/// it answers for services without their own layer.
///
/// ```
/// use std::time::SystemTime;
///
/// use http::StatusCode;
/// use plimsoll_tower::{Refusal, RefusalFormat, RefusalOf};
///
/// # fn respond(refusal: Refusal) {
/// let format = RefusalFormat::default().status(StatusCode::SERVICE_UNAVAILABLE);
/// let of = RefusalOf { refusal, bucket: Some("checkout"), limit: Some(1_000.0), tenant_limit: None, quota: None, at: SystemTime::now() };
/// assert_eq!(format.http(&of).status(), 503);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RefusalFormat {
    pub(super) status: StatusCode,
    pub(super) headers: RateLimitHeaders,
    /// The `type` of problem documents; `None` for that of the reason.
    pub(super) problem_type: Option<Box<str>>,
}

/// A refusal with everything that its response names.
#[derive(Clone, Copy, Debug)]
pub struct RefusalOf<'a> {
    /// The refusal.
    pub refusal: Refusal,
    /// The bucket that refused the request, if it is known.
    pub bucket: Option<&'a str>,
    /// The limit of the bucket in requests/s, if it is known. It is left out of refusals for another limit.
    pub limit: Option<f64>,
    /// The limit of the tenant, if that is the reason.
    pub tenant_limit: Option<TenantLimit>,
    /// The exact quota that is used up or cannot be checked, if that is the reason.
    pub quota: Option<&'a Quota>,
    /// The time of the refusal.
    pub at: SystemTime,
}

impl RefusalFormat {
    const DEFAULT: Self = Self {
        status: StatusCode::TOO_MANY_REQUESTS,
        headers: RateLimitHeaders::Both,
        problem_type: None,
    };

    /// Sets the status of refused HTTP requests, by default 429 Too Many Requests. A status that is no error, below
    /// 400, is logged and not taken: it would turn refusals into successes.
    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Self {
        if status.is_client_error() || status.is_server_error() {
            self.status = status;
        } else {
            tracing::error!(%status, "a refusal needs a status of 400 or above; refusals keep theirs");
        }
        self
    }

    /// Sets the families of header fields about limits.
    #[must_use]
    pub const fn headers(mut self, headers: RateLimitHeaders) -> Self {
        self.headers = headers;
        self
    }

    /// Sets the `type` of problem documents: a URI, which should lead to documentation for callers. By default it is
    /// the registered type that fits the reason, or else `about:blank`.
    #[must_use]
    pub fn problem_type(mut self, uri: &str) -> Self {
        self.problem_type = Some(uri.into());
        self
    }

    /// Returns the response to an HTTP request: a problem document, `Retry-After` and the fields about limits.
    #[must_use]
    pub fn http(&self, of: &RefusalOf<'_>) -> Response<Bytes> {
        problem::response(self, of)
    }

    /// Returns the response to a gRPC request: a status with details, among the headers, and no body.
    #[must_use]
    pub fn grpc(&self, of: &RefusalOf<'_>) -> Response<Bytes> {
        grpc::response(self, of)
    }
}

impl Default for RefusalFormat {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl RefusalOf<'_> {
    /// Returns the reason.
    pub fn reason(&self) -> Reason {
        self.refusal.reason()
    }

    /// Returns the reason in a sentence, and what the caller should do: the `detail` of the problem document.
    pub fn detail(&self) -> &'static str {
        words::detail(self.reason(), self.limit_owner())
    }

    /// Returns the limit that the request exceeded; `None` while it is unknown, and for reasons that concern another
    /// limit.
    pub(super) fn exceeded(&self) -> Option<f64> {
        match self.reason() {
            Reason::ClusterOverload | Reason::BurstGuard | Reason::ColdStart => self.limit,
            Reason::TenantLimit => self.tenant_limit.map(|limit| limit.per_second),
            Reason::TenantQuotaExceeded | Reason::QuotaDegraded => None,
        }
    }

    /// Returns the entry of the policy that sets the limit of the tenant, if that is the reason.
    pub(super) fn limit_owner(&self) -> Option<LimitOwner> {
        let limit = self.tenant_limit?;
        (self.reason() == Reason::TenantLimit).then_some(limit.owner)
    }

    /// Returns the quota that the request exceeded; `None` for other reasons.
    pub(super) fn used_up(&self) -> Option<&Quota> {
        self.quota
            .filter(|_| self.reason() == Reason::TenantQuotaExceeded)
    }

    /// Returns the wait in whole seconds, rounded up to at least 1, so that no caller retries too early.
    pub(super) fn wait_seconds(&self) -> u64 {
        whole(self.refusal.retry_after(), Duration::from_secs(1))
    }

    /// Returns the wait in whole milliseconds, rounded up.
    pub(super) fn wait_millis(&self) -> u64 {
        whole(self.refusal.retry_after(), Duration::from_millis(1))
    }
}

type Respond = dyn Fn(&Refused<'_>) -> Response<Bytes> + Send + Sync;

/// The refusals of a layer: their form, and the closure that responds in its place.
#[derive(Clone)]
pub(crate) struct Format {
    pub(crate) form: RefusalFormat,
    pub(crate) respond: Option<Arc<Respond>>,
}

impl Format {
    pub(crate) const DEFAULT: Self = Self {
        form: RefusalFormat::DEFAULT,
        respond: None,
    };

    pub(crate) fn response(&self, refused: &Refused<'_>) -> Response<Bytes> {
        match &self.respond {
            Some(respond) => respond(refused),
            None => refused.bytes(),
        }
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut format = f.debug_struct("Format");
        format
            .field("form", &self.form)
            .field("responds", &self.respond.is_some())
            .finish()
    }
}

/// Rounds up to whole units, at least one.
pub(super) fn whole(wait: Duration, unit: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(unit.as_nanos().max(1)))
        .unwrap_or(u64::MAX)
        .max(1)
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
            let units =
                [Duration::from_secs(1), Duration::from_millis(1)].map(|unit| whole(wait, unit));
            assert_eq!(units, [seconds, millis], "{wait:?}");
        }
    }
}
