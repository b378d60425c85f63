//! The counts of the rate limit service since the start, for metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;

use super::input::InputError;

/// The counts. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    ok: AtomicU64,
    over_limit: AtomicU64,
    withheld: AtomicU64,
    unmatched: AtomicU64,
    unlimited: AtomicU64,
    own_limit: AtomicU64,
    own_limit_withheld: AtomicU64,
    rejected: [AtomicU64; InputError::LABELS.len()],
}

/// The result of a request as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overall {
    /// It is admitted.
    Ok,
    /// It is admitted, and a refusal was withheld.
    Withheld,
    /// It is refused.
    OverLimit,
}

impl Counters {
    /// Counts a request.
    pub(super) fn on_request(&self, overall: Overall) {
        add(match overall {
            Overall::Ok => &self.inner.ok,
            Overall::Withheld => &self.inner.withheld,
            Overall::OverLimit => &self.inner.over_limit,
        });
    }

    /// Counts a descriptor that no rule matches, and logs the first: a proxy asks where limits are meant. Values may
    /// name tenants, and are not logged.
    pub(super) fn on_unmatched(&self, domain: &str, descriptor: &RateLimitDescriptor) {
        if self.inner.unmatched.fetch_add(1, Ordering::Relaxed) == 0 {
            let keys: Vec<&str> = descriptor.entries.iter().map(|entry| entry.key.as_str()).collect();
            tracing::warn!(
                domain,
                ?keys,
                remedy = "such requests are admitted without a limit: give the --rules file a rule for all entries of this \
                          descriptor, or correct the rate limit actions of the proxy",
                "descriptor matches no rule, logged once"
            );
        }
    }

    /// Counts a descriptor that passes by a rule.
    pub(super) fn on_unlimited(&self) {
        add(&self.inner.unlimited);
    }

    /// Counts a refusal by a descriptor's own limit.
    pub(super) fn on_own_limit(&self, is_enforced: bool) {
        add(if is_enforced { &self.inner.own_limit } else { &self.inner.own_limit_withheld });
    }

    /// Counts a request that is not decided, and logs the first for each reason: proxies hide the error, and serve the
    /// request.
    pub(super) fn on_rejected(&self, error: &InputError) {
        let Some(count) = self.inner.rejected.get(error.index()) else { return };
        if count.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(%error, "request of a proxy is not decided, logged once");
        }
    }

    /// Returns the requests by result.
    pub(crate) fn requests(&self) -> [(&'static str, u64); 4] {
        let rejected = self.rejected().iter().map(|(_, count)| count).sum();
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let inner = &self.inner;
        [
            ("ok", of(&inner.ok)),
            ("withheld", of(&inner.withheld)),
            ("over_limit", of(&inner.over_limit)),
            ("rejected", rejected),
        ]
    }

    /// Returns the descriptors that counted for no bucket, by cause.
    pub(crate) fn passed(&self) -> [(&'static str, u64); 2] {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [("no_rule", of(&self.inner.unmatched)), ("unlimited", of(&self.inner.unlimited))]
    }

    /// Returns the refusals by descriptors' own limits: those carried out, and those withheld.
    pub(crate) fn own_limits(&self) -> [(&'static str, u64); 2] {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [("true", of(&self.inner.own_limit)), ("false", of(&self.inner.own_limit_withheld))]
    }

    /// Returns the requests that were not decided, by reason.
    pub(crate) fn rejected(&self) -> [(&'static str, u64); InputError::LABELS.len()] {
        let mut rows = InputError::LABELS.map(|label| (label, 0));
        for ((_, row), count) in rows.iter_mut().zip(&self.inner.rejected) {
            *row = count.load(Ordering::Relaxed);
        }
        rows
    }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}
