//! The verdict on a request: admit, or refuse with a reason and a time to retry. A verdict is never an error.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::WaitClass;

/// The answer of a limiter, in eight bytes. A decision cannot fail, so this is not a `Result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a verdict protects nothing unless refused requests are turned away"]
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

    /// Returns the refusal as an error, for handlers that end with `?`.
    ///
    /// # Errors
    /// When the request is refused.
    pub const fn ok(self) -> Result<(), Refusal> {
        match self {
            Self::Admit => Ok(()),
            Self::Refuse(refusal) => Err(refusal),
        }
    }
}

/// The reason of a refusal and the time to retry, in four bytes: from the low bits up the reason, the
/// [class](WaitClass) of the wait, and a number that spreads the wait. All are computed on demand, because most
/// decisions admit. The refusal of a quota has the exact time until its reset instead.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("refused to shed load: {}, retry in {:?}", self.reason().as_str(), self.retry_after())]
pub struct Refusal(u32);

impl Refusal {
    const REASON_BITS: u32 = 3;
    const REASON: u32 = (1 << Self::REASON_BITS) - 1;
    const JITTER_AT: u32 = Self::REASON_BITS + WaitClass::BITS;
    /// The reason [`Reason::TenantQuotaExceeded`] with an exact wait in place of class and jitter.
    const UNTIL_RESET: u32 = Reason::ALL.len() as u32;
    /// The flag of an exact wait in seconds. Without it the wait is in milliseconds.
    const SECONDS: u32 = 1 << Self::REASON_BITS;
    const WAIT_AT: u32 = Self::REASON_BITS + 1;
    const WAIT_MAX: u128 = (1 << (u32::BITS - Self::WAIT_AT)) - 1;

    /// Makes a refusal. `jitter` is uniform over all of `u32`; its upper 24 bits count.
    #[inline]
    pub const fn new(reason: Reason, class: WaitClass, jitter: u32) -> Self {
        let jitter = jitter >> Self::JITTER_AT << Self::JITTER_AT;
        Self(jitter | class.bits() << Self::REASON_BITS | reason as u32)
    }

    /// Makes the refusal of a quota that is used up, with the time until its reset: rounded up to milliseconds, from
    /// three days on to seconds, and at most eight years.
    pub fn until_reset(wait: Duration) -> Self {
        let of = |units: u128| {
            u32::try_from(units).unwrap_or(u32::MAX) << Self::WAIT_AT | Self::UNTIL_RESET
        };
        let millis = wait.as_nanos().div_ceil(1_000_000);
        let seconds = wait.as_nanos().div_ceil(1_000_000_000).min(Self::WAIT_MAX);
        Self(if millis <= Self::WAIT_MAX {
            of(millis)
        } else {
            of(seconds) | Self::SECONDS
        })
    }

    /// Returns the reason.
    pub fn reason(self) -> Reason {
        match self.0 & Self::REASON {
            Self::UNTIL_RESET => Reason::TenantQuotaExceeded,
            reason => Reason::ALL
                .get(reason as usize)
                .copied()
                .unwrap_or(Reason::ClusterOverload),
        }
    }

    /// Returns the class of the wait; of an exact wait, that which fits it best.
    pub fn class(self) -> WaitClass {
        match self.until() {
            Some(wait) => WaitClass::of(wait),
            None => WaitClass::from_bits(self.0 >> Self::REASON_BITS),
        }
    }

    fn until(self) -> Option<Duration> {
        let wait = u64::from(self.0 >> Self::WAIT_AT);
        let is_exact = self.0 & Self::REASON == Self::UNTIL_RESET;
        let wait = if self.0 & Self::SECONDS > 0 {
            Duration::from_secs(wait)
        } else {
            Duration::from_millis(wait)
        };
        is_exact.then_some(wait)
    }

    /// Returns the wait before a retry of the caller, spread over the [span](WaitClass::span) of
    /// the class, so that refused callers do not all return together; for a quota that is used up,
    /// the time until its reset.
    pub fn retry_after(self) -> Duration {
        if let Some(wait) = self.until() {
            return wait;
        }
        let (class, jitter) = (self.class(), u64::from(self.0 >> Self::JITTER_AT));
        // At most 2^37 ns times 2^24.
        let spread =
            (class.spread().as_nanos() as u64).saturating_mul(jitter) >> (32 - Self::JITTER_AT);
        class.base() + Duration::from_nanos(spread)
    }
}

impl std::fmt::Debug for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut refusal = f.debug_struct("Refusal");
        refusal
            .field("reason", &self.reason())
            .field("retry_after", &self.retry_after())
            .finish()
    }
}

// The code after the last reason means a wait until a reset.
const _: () = assert!(Refusal::UNTIL_RESET <= Refusal::REASON);

/// The reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The coin: more is offered than the bucket may serve. Retry with backoff.
    ClusterOverload,
    /// This tenant is above its own limit, regardless of the others.
    TenantLimit,
    /// The token buckets of this instance: a burst that the control loop has not seen yet.
    BurstGuard,
    /// The rate that the service has set for the time before its first directive.
    ColdStart,
    /// The exact quota of this tenant is used up. Do not retry before its reset.
    TenantQuotaExceeded,
    /// The store of exact quotas does not answer, and its policy refuses meanwhile.
    QuotaDegraded,
}

impl Reason {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Self; 6] = [
        Self::ClusterOverload,
        Self::TenantLimit,
        Self::BurstGuard,
        Self::ColdStart,
        Self::TenantQuotaExceeded,
        Self::QuotaDegraded,
    ];

    /// The word in headers, bodies and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterOverload => "cluster_overload",
            Self::TenantLimit => "tenant_limit",
            Self::BurstGuard => "burst_guard",
            Self::ColdStart => "cold_start",
            Self::TenantQuotaExceeded => "tenant_quota_exceeded",
            Self::QuotaDegraded => "quota_degraded",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_spreads_over_its_class_span() {
        for class in WaitClass::all() {
            let wait = |jitter| Refusal::new(Reason::ClusterOverload, class, jitter).retry_after();
            let (base, spread) = (class.base(), class.spread());
            assert_eq!(
                (wait(0), wait(1 << 31)),
                (base, base + spread / 2),
                "{class:?}"
            );
            let last = base + spread - spread / 1_000_000;
            assert!(
                (last..base + spread).contains(&wait(u32::MAX)),
                "{class:?}: {:?}",
                wait(u32::MAX)
            );
            assert!(
                class.span().contains(&wait(u32::MAX)) && class.span().contains(&wait(0)),
                "{class:?}"
            );
        }
    }

    #[test]
    fn refusal_holds_reason_class_and_jitter_apart() {
        for (at, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at, "{}", reason.as_str());
            for class in WaitClass::all() {
                for jitter in [0, 7, 255, 1 << 31, u32::MAX] {
                    let refusal = Refusal::new(reason, class, jitter);
                    assert_eq!((refusal.reason(), refusal.class()), (reason, class));
                    let other = Refusal::new(Reason::ClusterOverload, class, jitter);
                    assert_eq!(refusal.retry_after(), other.retry_after());
                }
            }
        }
    }

    #[test]
    fn quota_refusal_holds_the_reset_time() {
        const DAY: Duration = Duration::from_secs(86_400);
        let ms = Duration::from_millis;
        for (wait, expected) in [
            (Duration::ZERO, Duration::ZERO),
            (Duration::from_nanos(1), ms(1)),
            (ms(1), ms(1)),
            (ms(59_999), ms(59_999)),
            (DAY + ms(1), DAY + ms(1)),
            (DAY * 3, DAY * 3),
            (ms((1 << 28) - 1), ms((1 << 28) - 1)),
            (ms(1 << 28), ms(268_436_000)),
            (DAY * 31 + ms(1), DAY * 31 + ms(1_000)),
            (DAY * 366, DAY * 366),
            (Duration::MAX, Duration::from_secs((1 << 28) - 1)),
        ] {
            let refusal = Refusal::until_reset(wait);
            assert_eq!(refusal.retry_after(), expected, "{wait:?}");
            assert_eq!(
                (refusal.reason(), refusal.class()),
                (Reason::TenantQuotaExceeded, WaitClass::of(expected))
            );
        }
    }

    #[test]
    fn verdict_fits_a_register() {
        assert_eq!(size_of::<Verdict>(), 8);
    }
}
