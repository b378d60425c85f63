//! A second limit of a bucket that is only evaluated: what the law would refuse by it of the very same requests.
//!
//! The law runs a second time, for the bucket as a whole: a balance of its own, credited by the candidate and debited with
//! what would have passed. It cannot tell how callers would answer other refusals (by asking again, or not), which tenant
//! would be refused, or what guards and single zones would add: those follow from what is carried out.

use plimsoll_core::law::{Balance, Parameters};
use plimsoll_policy::BucketPolicy;
use plimsoll_core::quantity::Rate;
use std::time::Duration;

/// A candidate and what it would have done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    limit: Rate,
    balance: Balance,
    ratio: f64,
    offered: f64,
    would_dropped: f64,
}

impl Candidate {
    /// That of a policy, which goes on as it was if it is the same.
    pub(super) fn configured(held: Option<Self>, policy: Option<&BucketPolicy>) -> Option<Self> {
        let limit = policy?.candidate()?;
        let fresh = Self { limit, balance: Balance::default(), ratio: 0.0, offered: 0.0, would_dropped: 0.0 };
        Some(held.filter(|held| held.limit == limit).unwrap_or(fresh))
    }

    /// What may pass, in requests/s.
    #[must_use]
    pub const fn limit(&self) -> Rate {
        self.limit
    }

    /// The share of requests that it would refuse now: 0..=1.
    #[must_use]
    pub const fn ratio(&self) -> f64 {
        self.ratio
    }

    /// Requests that it was held against.
    #[must_use]
    pub const fn offered(&self) -> u64 {
        self.offered as u64
    }

    /// How many of them it would have refused.
    #[must_use]
    pub const fn would_dropped(&self) -> u64 {
        self.would_dropped as u64
    }

    /// So many requests came through a zone in this time, which is one of so many.
    pub(super) fn count(&mut self, offered: f64, span: Duration, presences: f64) {
        let would_dropped = offered * self.ratio;
        self.offered += offered;
        self.would_dropped += would_dropped;
        self.balance
            .add(self.limit.per_second() * span.as_secs_f64() / presences - (offered - would_dropped));
    }

    /// All zones were counted: what would be refused until the next tick, of so many requests/s.
    pub(super) fn decide(&mut self, offered: f64, burst: Duration, parameters: &Parameters) {
        let limit = self.limit.per_second();
        let target = if limit > 0.0 { self.balance.target(limit, burst, parameters) } else { 0.0 };
        self.ratio = if offered > 0.0 { (1.0 - target / offered).clamp(0.0, 1.0) } else { 0.0 };
    }
}
