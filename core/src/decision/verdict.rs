//! The answer to a request: admit, or refuse and say why and until when. A verdict is never an error.

use std::time::Duration;

/// What a limiter answers. Deciding cannot fail, so this is not a `Result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a verdict that nobody looks at protects nothing"]
pub enum Verdict {
    /// Let the request through.
    Admit,
    /// Turn the request away.
    Refuse(Refusal),
}

impl Verdict {
    /// Whether the request may pass.
    #[must_use]
    pub const fn is_admit(self) -> bool {
        matches!(self, Self::Admit)
    }
}

/// Why a request was turned away, and when to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// How long the caller should wait. Jittered, so that refused callers do not all return at once.
    pub retry_after: Duration,
}

/// Why a request was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// More is offered to the bucket than the fleet can serve: come back, with backoff.
    ClusterOverload,
}

impl Reason {
    /// The word that travels in headers and bodies.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterOverload => "cluster_overload",
        }
    }
}
