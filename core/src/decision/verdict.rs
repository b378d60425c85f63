//! The verdict on a request: admit, or refuse with a reason and a time to retry. A verdict is never an error.

use std::time::Duration;

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

/// The reason of a refusal and the time to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub reason: Reason,
    /// A number, uniform over `u32`, that spreads the time to retry. The time is computed on demand: most
    /// decisions admit.
    jitter: u32,
}

impl Refusal {
    /// Makes a refusal. `jitter` is uniform over all of `u32`.
    #[inline]
    pub const fn new(reason: Reason, jitter: u32) -> Self {
        Self { reason, jitter }
    }

    /// Returns the time after which the caller may retry: 1 s to 3 s, jittered, so that refused callers do not
    /// all return at once.
    pub const fn retry_after(self) -> Duration {
        let seconds = 1 + (self.jitter >> 31);
        let nanos = ((self.jitter << 1) as u64 * 1_000_000_000) >> 32;
        Duration::new(seconds as u64, nanos as u32)
    }
}

/// The reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The offered rate of the bucket exceeds its limit: retry with backoff.
    ClusterOverload,
}

impl Reason {
    /// The word in headers and bodies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterOverload => "cluster_overload",
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
    fn verdict_fits_a_register() {
        assert_eq!(size_of::<Verdict>(), 8);
    }
}
