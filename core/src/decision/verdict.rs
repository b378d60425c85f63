//! The verdict on a request: admit, or refuse with a reason and a time to retry. A verdict is never an error.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The answer of a limiter, in eight bytes. A decision cannot fail, so this is not a `Result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a verdict that nobody looks at protects nothing"]
pub enum Verdict {
    /// Let the request through.
    Admit,
    /// Refuse the request.
    Refuse(Refusal),
}

impl Verdict {
    /// Returns true if the request may pass.
    #[inline]
    pub const fn is_admit(self) -> bool {
        matches!(self, Self::Admit)
    }
}

/// The reason of a refusal and the time to retry, in four bytes: the low bits are the reason, and the others
/// of a number that spreads the time to retry. Both are computed on demand, because most decisions admit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Refusal(u32);

impl Refusal {
    const REASON: u32 = 7;

    /// Makes a refusal. `jitter` is uniform over all of `u32`.
    #[inline]
    pub const fn new(reason: Reason, jitter: u32) -> Self {
        Self(jitter & !Self::REASON | reason as u32)
    }

    /// Returns the reason.
    pub fn reason(self) -> Reason {
        Reason::ALL.get((self.0 & Self::REASON) as usize).copied().unwrap_or(Reason::ClusterOverload)
    }

    /// Returns the time after which the caller may retry: 1 s to 3 s, jittered, so that refused callers do not
    /// all return at once.
    pub const fn retry_after(self) -> Duration {
        let jitter = self.0 & !Self::REASON;
        let seconds = 1 + (jitter >> 31);
        let nanos = ((jitter << 1) as u64 * 1_000_000_000) >> 32;
        Duration::new(seconds as u64, nanos as u32)
    }
}

impl std::fmt::Debug for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut refusal = f.debug_struct("Refusal");
        refusal.field("reason", &self.reason()).field("retry_after", &self.retry_after()).finish()
    }
}

/// The reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The coin: more is offered than the bucket may serve. Retry with backoff.
    ClusterOverload,
    /// This tenant is above its own limit, whatever the others do.
    TenantLimit,
    /// The token buckets of this instance: a burst that the control loop has not seen yet.
    BurstGuard,
    /// The rate that the service has set for the time before its first directive.
    ColdStart,
}

impl Reason {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Self; 4] = [Self::ClusterOverload, Self::TenantLimit, Self::BurstGuard, Self::ColdStart];

    /// The word in headers, bodies and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterOverload => "cluster_overload",
            Self::TenantLimit => "tenant_limit",
            Self::BurstGuard => "burst_guard",
            Self::ColdStart => "cold_start",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_spread_over_two_seconds() {
        let wait = |jitter| Refusal::new(Reason::ClusterOverload, jitter).retry_after();
        assert_eq!((wait(0), wait(1 << 31)), (Duration::from_secs(1), Duration::from_secs(2)));
        assert!((Duration::from_millis(2_999)..Duration::from_secs(3)).contains(&wait(u32::MAX)));
        assert_eq!(wait(3 << 30).as_millis(), 2_500);
    }

    #[test]
    fn refusal_holds_reason_and_jitter_apart() {
        for (at, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at, "{}", reason.as_str());
            for jitter in [0, 7, 1 << 31, u32::MAX] {
                let refusal = Refusal::new(reason, jitter);
                assert_eq!(refusal.reason(), reason);
                assert_eq!(
                    refusal.retry_after(),
                    Refusal::new(Reason::ClusterOverload, jitter).retry_after()
                );
            }
        }
    }

    #[test]
    fn verdict_fits_a_register() {
        assert_eq!(size_of::<Verdict>(), 8);
    }
}
