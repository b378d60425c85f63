//! Responses that a process observes for others, and what it may tell them about a bucket.

use std::time::Duration;

use plimsoll_core::quantity::Rate;

use crate::responses::Ending;
use crate::{Limiter, Request, TenantLimit};

/// A response that the caller of [`Limiter::record`] observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedResponse {
    ending: Ending,
    took: Option<Duration>,
}

impl ObservedResponse {
    /// Makes an HTTP response. A status from 500 is a failure of the service.
    #[must_use]
    pub const fn status(status: u16) -> Self {
        Self {
            ending: Ending::Status(status),
            took: None,
        }
    }

    /// Makes a response of any protocol that is no failure.
    #[must_use]
    pub const fn success() -> Self {
        Self {
            ending: Ending::Success,
            took: None,
        }
    }

    /// Makes a failure of the service, with or without a response.
    #[must_use]
    pub const fn failure() -> Self {
        Self {
            ending: Ending::Error,
            took: None,
        }
    }

    /// Adds the time from the decision to the response.
    #[must_use]
    pub const fn took(mut self, took: Duration) -> Self {
        self.took = Some(took);
        self
    }
}

impl Limiter {
    /// Returns the limit of a bucket in requests/s over all zones; `None` while it is unknown, and where there is none.
    #[must_use]
    pub fn limit(&self, bucket: &str) -> Option<f64> {
        let place = self.table.known_bucket(bucket)?;
        self.table
            .limits
            .get(place.bucket)
            .per_second()
            .map(Rate::per_second)
    }

    /// Returns the limit of a request's tenant, for a refusal that names it; `None` without one, and while it is unknown.
    #[must_use]
    pub fn tenant_limit(&self, request: &Request<'_>) -> Option<TenantLimit> {
        let (bucket, key) = self.known_key(request)?;
        self.table.tenant_limit(bucket, key)
    }

    /// Records a response to a request that the caller observed, for rollout gates and metrics. Returns false if the
    /// bucket is unknown.
    pub fn record(&self, request: &Request<'_>, response: ObservedResponse) -> bool {
        let Some((bucket, key)) = self.known_key(request) else {
            return false;
        };
        let recorder = self.table.responses.recorder_of_key(bucket, key);
        match response.took {
            Some(took) => recorder.ended(took, Some(response.ending)),
            None => recorder.count(response.ending),
        }
        true
    }

    /// Returns the bucket and the key that a request counts for; `None` for an unknown bucket.
    pub(crate) fn known_key(&self, request: &Request<'_>) -> Option<(u32, u32)> {
        let place = self.table.known_bucket(request.bucket())?;
        let target = self
            .table
            .known_target(place, request.tenant, request.of.plan());
        Some((place.bucket, target.key))
    }
}
