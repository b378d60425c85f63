//! The decision about one key of a request, its preview, and the cost that it counts.

use std::sync::Arc;

use plimsoll_core::decision::{Reason, Verdict};
use plimsoll_core::quantity::DropRatio;
use plimsoll_core::quota::Quota;

/// Maximum number of requests that one request counts as, for coin, guard and reports: callers may
/// influence a cost, and a larger one would take a bucket's tokens for many seconds. Exact quotas
/// take the whole cost.
pub const COST_MAX: u32 = 10_000;

/// A preview of the decision about a request: counts nothing and takes no token. Of a request of several keys it
/// shows the strictest of each; of an unknown bucket it is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peek {
    /// The probability that the draw refuses a request.
    pub ratio: DropRatio,
    /// True if refusals are enforced here: not in shadow mode, while killed, or outside the canary cohort.
    pub enforced: bool,
    /// True if a guard is set, and neither it nor the bucket's headroom has a token left until the next refill.
    /// Threads may still hold tokens that they took before.
    pub exhausted: bool,
}

/// The decision about one key of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The verdict.
    pub verdict: Verdict,
    /// The reason of a refusal that was decided but not carried out: in shadow mode, while killed, or outside of the
    /// canary.
    pub withheld: Option<Reason>,
    /// The exact quota that refused the request, or would have.
    pub quota: Option<Arc<Quota>>,
}

impl Decided {
    /// An admitted request, with nothing withheld.
    pub const ADMITTED: Self = Self::of(Verdict::Admit);

    #[inline]
    pub(crate) const fn of(verdict: Verdict) -> Self {
        Self {
            verdict,
            withheld: None,
            quota: None,
        }
    }

    /// Returns true if the request is certainly part of the offered load. One that an exact quota refused may be none: it
    /// is not counted there when the used-up quota is remembered.
    pub fn is_offered(&self) -> bool {
        self.verdict.is_admit() || self.quota.is_none()
    }
}
