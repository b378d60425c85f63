//! The refusals of each bucket by its exact quotas, by reason: for metrics, which the counts of keys do not tell apart.

use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_core::decision::Reason;

use crate::hot::thread_counters::QuotaOutcome;

/// The number of counters of a bucket.
const COUNTERS: usize = 5;

/// The refusals of all buckets, by id.
#[derive(Debug)]
pub(super) struct Tallies(Box<[[AtomicU64; COUNTERS]]>);

/// The refusals of one bucket by its exact quotas, in requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QuotaTally {
    /// Refused, because a quota was used up.
    pub(crate) exceeded: u64,
    /// Refused, because the store did not answer.
    pub(crate) degraded: u64,
    /// Admitted although a quota was used up, because the refusal was not carried out.
    pub(crate) would_exceeded: u64,
    /// Admitted although the store did not answer, because the refusal was not carried out.
    pub(crate) would_degraded: u64,
    /// Refused from memory, before the coin.
    pub(crate) repeated: u64,
}

impl Tallies {
    pub(super) fn new(buckets: usize) -> Self {
        Self((0..buckets).map(|_| Default::default()).collect())
    }

    /// Counts `n` requests of a bucket.
    pub(super) fn count(&self, bucket: u32, outcome: QuotaOutcome, reason: Reason, n: u32) {
        let is_degraded = reason == Reason::QuotaDegraded;
        let at = match outcome {
            QuotaOutcome::Dropped => usize::from(is_degraded),
            QuotaOutcome::WouldDropped => 2 + usize::from(is_degraded),
            QuotaOutcome::Repeated => 4,
        };
        if let Some(counters) = self.0.get(bucket as usize) {
            counters[at].fetch_add(n.into(), Ordering::Relaxed);
        }
    }

    pub(super) fn of(&self, bucket: u32) -> QuotaTally {
        let Some(counters) = self.0.get(bucket as usize) else { return QuotaTally::default() };
        let [exceeded, degraded, would_exceeded, would_degraded, repeated] =
            counters.each_ref().map(|counter| counter.load(Ordering::Relaxed));
        QuotaTally { exceeded, degraded, would_exceeded, would_degraded, repeated }
    }
}

impl QuotaTally {
    /// Returns the refusals since an earlier tally.
    #[must_use]
    pub(crate) const fn since(self, earlier: Self) -> Self {
        Self {
            exceeded: self.exceeded.saturating_sub(earlier.exceeded),
            degraded: self.degraded.saturating_sub(earlier.degraded),
            would_exceeded: self.would_exceeded.saturating_sub(earlier.would_exceeded),
            would_degraded: self.would_degraded.saturating_sub(earlier.would_degraded),
            repeated: self.repeated.saturating_sub(earlier.repeated),
        }
    }

    /// Adds two tallies.
    #[must_use]
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            exceeded: self.exceeded.saturating_add(other.exceeded),
            degraded: self.degraded.saturating_add(other.degraded),
            would_exceeded: self.would_exceeded.saturating_add(other.would_exceeded),
            would_degraded: self.would_degraded.saturating_add(other.would_degraded),
            repeated: self.repeated.saturating_add(other.repeated),
        }
    }
}
