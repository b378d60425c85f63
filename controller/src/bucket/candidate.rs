//! The candidate of a bucket: a second limit that is only evaluated. It counts what the law would refuse of
//! the same requests, and refuses none of them.
//!
//! The law runs a second time for the bucket as a whole: the candidate has its own balance, which
//! its limit credits and the requests that would have passed debit. Three effects are left out,
//! because they follow only from real refusals: retries of callers, the choice of the refused
//! tenant, and the guards of single zones.

use std::time::Duration;

use plimsoll_core::law::{Balance, Parameters};
use plimsoll_core::quantity::Rate;
use plimsoll_policy::BucketPolicy;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) limit: Rate,
    balance: Balance,
    /// The share of requests that it would refuse now: 0..=1.
    pub(crate) ratio: f64,
    /// Requests since this limit was configured, and how many of them it would have refused.
    pub(crate) offered: f64,
    pub(crate) would_dropped: f64,
}

// === impl Candidate ===

impl Candidate {
    pub(super) fn configured(present: Option<Self>, policy: Option<&BucketPolicy>) -> Option<Self> {
        let limit = policy?.candidate?;
        let fresh = Self {
            limit,
            balance: Balance::default(),
            ratio: 0.0,
            offered: 0.0,
            would_dropped: 0.0,
        };
        let kept = present.filter(|present| present.limit == limit);
        Some(kept.unwrap_or(fresh))
    }

    /// Counts the requests `offered` to one of the `presences` zones over `span`.
    pub(super) fn count(&mut self, offered: f64, span: Duration, presences: f64) {
        let would_dropped = offered * self.ratio;
        self.offered += offered;
        self.would_dropped += would_dropped;
        self.balance.add(
            self.limit.per_second() * span.as_secs_f64() / presences - (offered - would_dropped),
        );
    }

    /// Sets the ratio for the next tick, once all zones were counted. `offered` is in requests/s over all
    /// zones.
    pub(super) fn decide(&mut self, offered: f64, burst: Duration, parameters: &Parameters) {
        let limit = self.limit.per_second();
        let target = if limit > 0.0 {
            self.balance.target(limit, burst, parameters)
        } else {
            0.0
        };
        self.ratio = if offered > 0.0 {
            (1.0 - target / offered).clamp(0.0, 1.0)
        } else {
            0.0
        };
    }
}
