//! Decisions by names about requests that a proxy asks about: with a cost, by several keys at once, with what was
//! withheld, and with responses that the caller observed.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::decision::trace::TraceId;
use plimsoll_core::decision::{Reason, Verdict};
use plimsoll_core::quantity::Rate;
use plimsoll_core::quota::Quota;
use smallvec::SmallVec;

use super::handles::{recorder_of, thread_ctx};
use super::{Limiter, Peek};
use crate::hot::decision::Part;
use crate::hot::table::Target;
use crate::responses::Ending;

/// The keys of a request that are decided together without an allocation.
const TOGETHER_ON_STACK: usize = 32;

/// The targets of the keys of a request; `None` for a bucket without room.
pub(super) type Targets = SmallVec<[Option<Target>; TOGETHER_ON_STACK]>;

/// A key that a request counts for, by names, and the number of requests it counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRequest<'a> {
    /// The bucket.
    pub bucket: &'a str,
    /// The tenant; `default` for the default class.
    pub tenant: &'a str,
    /// The number of requests; 0 to decide as for one request and count nothing. More than 10,000 count as so many,
    /// except for exact quotas.
    pub cost: u32,
}

/// The decision about one key of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The verdict.
    pub verdict: Verdict,
    /// The reason of a refusal that was decided but not carried out: in shadow mode, while killed, or outside of the
    /// canary.
    pub withheld: Option<Reason>,
    /// The exact quota that refused the request, or would have.
    pub quota: Option<Arc<Quota>>,
}

/// A response that the caller of [`Limiter::record`] observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedResponse {
    ending: Ending,
    took: Option<Duration>,
}

impl Decided {
    /// An admitted request, with nothing withheld.
    pub const ADMITTED: Self = Self { verdict: Verdict::Admit, withheld: None, quota: None };

    /// Makes the decision of a verdict, with nothing withheld.
    #[inline]
    pub(crate) const fn of(verdict: Verdict) -> Self {
        Self { verdict, withheld: None, quota: None }
    }
}

impl ObservedResponse {
    /// Makes an HTTP response. A status from 500 is a failure of the service.
    #[must_use]
    pub const fn status(status: u16) -> Self {
        Self { ending: Ending::Status(status), took: None }
    }

    /// Makes a response of any protocol that is no failure.
    #[must_use]
    pub const fn success() -> Self {
        Self { ending: Ending::Success, took: None }
    }

    /// Makes a failure of the service, with or without a response.
    #[must_use]
    pub const fn failure() -> Self {
        Self { ending: Ending::Error, took: None }
    }

    /// Adds the time from the decision to the response.
    #[must_use]
    pub const fn took(mut self, took: Duration) -> Self {
        self.took = Some(took);
        self
    }
}

impl Limiter {
    /// Decides about a request by names, like [`admit`](Self::admit), and says which refusal was withheld. Decides by
    /// the trace where the bucket's coin is coherent; see [`KeyHandle::admit_traced`](crate::KeyHandle::admit_traced).
    /// Exact quotas are not asked; see [`decide_with_quotas`](Self::decide_with_quotas).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use plimsoll_client::KeyRequest;
    ///
    /// let (limiter, _feed) = plimsoll_client::Limiter::builder("shop")?.build()?;
    /// let decided = limiter.decide(KeyRequest { bucket: "checkout", tenant: "acme", cost: 1 }, None);
    /// assert!(decided.verdict.is_admit() && decided.withheld.is_none());
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn decide(&self, request: KeyRequest<'_>, trace: Option<TraceId>) -> Decided {
        match self.target(request) {
            Some(target) => self.table.decide_in_full(target, request.cost, trace, thread_ctx(&self.table)),
            None => Decided::ADMITTED,
        }
    }

    /// Decides about a request that is subject to several keys: all or none admit it, by one draw. `decided` is cleared,
    /// and then has the result of each key alone, in the order of `requests`. The request as a whole is refused if any
    /// of them refuses: then it counts as dropped for all keys, and takes no token of any.
    ///
    /// Where several guards would refuse, the first does. Exact quotas are not asked; see
    /// [`decide_together_with_quotas`](Self::decide_together_with_quotas).
    pub fn decide_together(
        &self,
        requests: &[KeyRequest<'_>],
        trace: Option<TraceId>,
        decided: &mut Vec<Decided>,
    ) {
        decided.clear();
        if let [request] = requests {
            // By its key's dithered coin, which is more even than an independent draw.
            decided.push(self.decide(*request, trace));
            return;
        }
        let targets: Targets = requests.iter().map(|request| self.target(*request)).collect();
        self.decide_targets(requests, &targets, trace, decided);
    }

    /// Decides about a request that is subject to several keys, by their targets.
    pub(super) fn decide_targets(
        &self,
        requests: &[KeyRequest<'_>],
        targets: &Targets,
        trace: Option<TraceId>,
        decided: &mut Vec<Decided>,
    ) {
        decided.clear();
        let parts = requests.iter().zip(targets);
        let parts = parts.filter_map(|(request, target)| Some(Part::new((*target)?, request.cost)));
        let mut parts: SmallVec<[Part; TOGETHER_ON_STACK]> = parts.collect();
        let (_, jitter) = self.table.decide_parts(&mut parts, trace, thread_ctx(&self.table));
        let mut parts = parts.iter();
        decided.extend(targets.iter().map(|target| match target {
            Some(_) => parts.next().map_or(Decided::ADMITTED, |part| part.decided(jitter)),
            None => Decided::ADMITTED,
        }));
    }

    /// Previews the decision about a request: counts nothing and takes no room. `None` for a bucket that neither a
    /// request nor the service has named.
    #[must_use]
    pub fn peek(&self, bucket: &str, tenant: &str) -> Option<Peek> {
        let place = self.table.known_bucket(bucket)?;
        Some(self.table.peek(self.table.known_target(place, tenant)))
    }

    /// Returns the limit of a bucket in requests/s over all zones; `None` while it is unknown, and where there is none.
    #[must_use]
    pub fn limit(&self, bucket: &str) -> Option<f64> {
        let place = self.table.known_bucket(bucket)?;
        self.table.limits.get(place.bucket).per_second().map(Rate::per_second)
    }

    /// Records a response that the caller observed, for rollout gates and metrics. Returns false if the bucket is
    /// unknown.
    pub fn record(&self, bucket: &str, tenant: &str, response: ObservedResponse) -> bool {
        let Some(place) = self.table.known_bucket(bucket) else { return false };
        let recorder = recorder_of(&self.table, place, tenant);
        match response.took {
            Some(took) => recorder.ended(took, Some(response.ending)),
            None => recorder.count(response.ending),
        }
        true
    }

    /// Returns the target of a request by names. A request without a cost takes no room.
    #[inline]
    pub(super) fn target(&self, request: KeyRequest<'_>) -> Option<Target> {
        match request.cost {
            0 => self.known_target(request),
            _ => self.table.target_by_names(request.bucket, request.tenant),
        }
    }

    #[cold]
    fn known_target(&self, request: KeyRequest<'_>) -> Option<Target> {
        let place = self.table.known_bucket(request.bucket)?;
        Some(self.table.known_target(place, request.tenant))
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests;
