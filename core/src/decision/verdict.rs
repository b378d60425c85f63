//! The verdict on a request: admit, or refuse with a reason and a time to retry. A verdict is never an error.

use std::time::Duration;

/// The answer of a limiter. A decision cannot fail, so this is not a `Result`.
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
    pub const fn is_admit(self) -> bool {
        matches!(self, Self::Admit)
    }
}

/// The reason of a refusal and the time to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub reason: Reason,
    /// The time after which the caller may retry. Jittered, so that refused callers do not all return at
    /// once.
    pub retry_after: Duration,
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
