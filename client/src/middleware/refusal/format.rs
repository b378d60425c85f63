//! The format of refusals: the settings of a layer.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};

use super::Refused;

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
    /// Returns true if the fields of the IETF's draft are wanted.
    pub(super) const fn has_ietf(self) -> bool {
        matches!(self, Self::Both | Self::Ietf)
    }

    /// Returns true if the fields with the prefix `X-RateLimit-` are wanted.
    pub(super) const fn has_x(self) -> bool {
        matches!(self, Self::Both | Self::XRateLimit)
    }
}

/// A service's own response.
type Respond = dyn Fn(&Refused<'_>) -> Response<Bytes> + Send + Sync;

/// The settings of refusals.
#[derive(Clone)]
pub(in crate::middleware) struct Format {
    pub(in crate::middleware) status: StatusCode,
    pub(in crate::middleware) headers: RateLimitHeaders,
    /// The `type` of problem documents; `None` for that of the reason.
    pub(in crate::middleware) problem_type: Option<Box<str>>,
    pub(in crate::middleware) respond: Option<Arc<Respond>>,
}

impl Format {
    /// The format of a layer without settings.
    pub(in crate::middleware) const DEFAULT: Self = Self {
        status: StatusCode::TOO_MANY_REQUESTS,
        headers: RateLimitHeaders::Both,
        problem_type: None,
        respond: None,
    };

    /// Makes the response to a refused request.
    pub(super) fn response(&self, refused: &Refused<'_>) -> Response<Bytes> {
        match &self.respond {
            Some(respond) => respond(refused),
            None => refused.response(),
        }
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut format = f.debug_struct("Format");
        format.field("status", &self.status).field("headers", &self.headers);
        format.field("problem_type", &self.problem_type).field("responds", &self.respond.is_some()).finish()
    }
}
