//! The counts of the rate limit service since the start, for metrics.

use super::input::InputError;
use super::messages::RateLimitDescriptor;
use crate::tally::Tally;

#[derive(Debug)]
pub(crate) struct Counters {
    requests: Tally<4>,
    passed: Tally<2>,
    rejected: Tally<{ InputError::LABELS.len() }>,
}

/// Result of a decided request, in the order of the labels of `requests`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overall {
    Ok,
    /// Admitted, with a refusal that was not carried out.
    Withheld,
    OverLimit,
}

const REJECTED: usize = 3;

impl Default for Counters {
    fn default() -> Self {
        Self {
            requests: Tally::new(["ok", "withheld", "over_limit", "rejected"]),
            passed: Tally::new(["no_rule", "unlimited"]),
            rejected: Tally::new(InputError::LABELS),
        }
    }
}

impl Counters {
    pub(super) fn on_request(&self, overall: Overall) {
        self.requests.add(overall as usize);
    }

    /// Counts a descriptor that no rule matches, or whose bucket is invalid or not listed, and logs the first: a proxy
    /// asks where limits are meant. Values may name tenants, and are not logged.
    pub(super) fn on_unmatched(&self, domain: &str, descriptor: &RateLimitDescriptor) {
        if self.passed.add(0) {
            let keys: Vec<&str> = descriptor
                .entries
                .iter()
                .map(|entry| entry.key.as_str())
                .collect();
            tracing::warn!(
                domain,
                ?keys,
                remedy = "such requests are admitted without a limit: give the --rules file a rule for all entries of this \
                          descriptor, or correct the rate limit actions of the proxy",
                "descriptor matches no rule, logged once"
            );
        }
    }

    pub(super) fn on_unlimited(&self) {
        self.passed.add(1);
    }

    /// Counts a request that is not decided, and logs the first for each reason: proxies hide the
    /// error, and serve the request.
    pub(super) fn on_rejected(&self, error: &InputError) {
        self.requests.add(REJECTED);
        if self.rejected.add(error.index()) {
            tracing::warn!(%error, "request of a proxy is not decided, logged once");
        }
    }

    pub(crate) fn requests(&self) -> [(&'static str, u64); 4] {
        self.requests.rows()
    }

    pub(crate) fn passed(&self) -> [(&'static str, u64); 2] {
        self.passed.rows()
    }

    pub(crate) fn rejected(&self) -> [(&'static str, u64); InputError::LABELS.len()] {
        self.rejected.rows()
    }
}
