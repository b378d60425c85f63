//! The counts of one key, which only ever grow, and the part of them that arrived late.

/// The requests of one key since the counting process began. Only ever grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests offered.
    pub offered: u64,
    /// Requests that the coin refused.
    pub dropped: u64,
    /// Requests that the guard refused, after the coin had let them pass.
    pub guard_dropped: u64,
    /// Refusals of coin or guard decided but not carried out: in shadow, while killed, outside the canary.
    pub would_dropped: u64,
    /// The part of `would_dropped` that the guard decided.
    pub would_guard_dropped: u64,
    /// Requests that an exact quota refused, after coin and guard had let them pass.
    pub quota_dropped: u64,
    /// Refusals of an exact quota decided but not carried out.
    pub would_quota_dropped: u64,
    /// Requests refused from the memory of a quota's refusal, before the coin; no part of `offered`
    /// (docs/control-law.md).
    pub quota_repeated: u64,
    /// Part of `offered` that callers marked as sent again. It changes no decision; a caller may mark what it likes.
    pub retried: u64,
}

/// The number of counts of a key.
pub const COLUMNS: usize = 9;

impl Counts {
    /// No requests.
    pub const ZERO: Self = Self::of_columns([0; COLUMNS]);

    /// Returns the counts in the order of their declaration.
    #[inline]
    pub const fn columns(self) -> [u64; COLUMNS] {
        [
            self.offered,
            self.dropped,
            self.guard_dropped,
            self.would_dropped,
            self.would_guard_dropped,
            self.quota_dropped,
            self.would_quota_dropped,
            self.quota_repeated,
            self.retried,
        ]
    }

    /// Builds counts from their [columns](Self::columns).
    #[inline]
    pub const fn of_columns(columns: [u64; COLUMNS]) -> Self {
        let [
            offered,
            dropped,
            guard_dropped,
            would_dropped,
            would_guard_dropped,
            rest @ ..,
        ] = columns;
        let [quota_dropped, would_quota_dropped, quota_repeated, retried] = rest;
        Self {
            offered,
            dropped,
            guard_dropped,
            would_dropped,
            would_guard_dropped,
            quota_dropped,
            would_quota_dropped,
            quota_repeated,
            retried,
        }
    }

    /// Requests that arrived, with those refused before they were offered. Fits into 64 bits if the
    /// counts are consistent.
    pub const fn asked(self) -> u64 {
        self.offered.saturating_add(self.quota_repeated)
    }

    /// Requests that were refused, by coin or guard.
    pub const fn refused(self) -> u64 {
        self.dropped.saturating_add(self.guard_dropped)
    }

    /// Requests that were let through, by quotas too.
    pub const fn admitted(self) -> u64 {
        self.offered
            .saturating_sub(self.refused())
            .saturating_sub(self.quota_dropped)
    }

    /// The requests that coin and guard let through, *or would under enforcement*: the input V of the law, also in
    /// shadow. A request that a quota refuses afterwards counts, because the law has admitted it.
    pub const fn passed(self) -> u64 {
        self.offered
            .saturating_sub(self.refused())
            .saturating_sub(self.would_dropped)
    }

    /// Requests that the guard decided to refuse, carried out or not.
    pub const fn guarded(self) -> u64 {
        self.guard_dropped.saturating_add(self.would_guard_dropped)
    }

    /// Returns true if no more was refused, or would have been, than was offered, and all of `asked` fits into 64 bits.
    #[inline]
    pub fn is_consistent(self) -> bool {
        let refused = self.dropped.checked_add(self.guard_dropped);
        let decided = refused.and_then(|refused| refused.checked_add(self.would_dropped));
        let by_quota = self.quota_dropped.checked_add(self.would_quota_dropped);
        decided.is_some_and(|decided| decided <= self.offered)
            && self.would_guard_dropped <= self.would_dropped
            && by_quota.is_some_and(|by_quota| by_quota <= self.passed())
            && self.quota_repeated <= u64::MAX - self.offered
            && self.retried <= self.offered
    }

    /// Returns the maximum part of these counts that is consistent with the requests offered.
    pub fn consistent_part(self) -> Self {
        let dropped = self.dropped.min(self.offered);
        let guard_dropped = self.guard_dropped.min(self.offered - dropped);
        let would_dropped = self
            .would_dropped
            .min(self.offered - dropped - guard_dropped);
        let would_guard_dropped = self.would_guard_dropped.min(would_dropped);
        let part = Self {
            dropped,
            guard_dropped,
            would_dropped,
            would_guard_dropped,
            ..self
        };
        let quota_dropped = self.quota_dropped.min(part.passed());
        let would_quota_dropped = self.would_quota_dropped.min(part.passed() - quota_dropped);
        let quota_repeated = self.quota_repeated.min(u64::MAX - self.offered);
        Self {
            quota_dropped,
            would_quota_dropped,
            quota_repeated,
            retried: self.retried.min(self.offered),
            ..part
        }
    }

    /// Returns true if every column is at or above that of `other`.
    #[inline]
    pub fn covers(self, other: Self) -> bool {
        self.columns()
            .iter()
            .zip(other.columns())
            .all(|(count, other)| *count >= other)
    }

    /// The join of two states of one cumulative count, the larger of each column: associative, commutative, idempotent.
    #[inline]
    pub fn merge(self, other: Self) -> Self {
        self.zip(other, u64::max)
    }

    /// Returns the counts since `earlier`; columns that decreased count as 0.
    #[inline]
    pub fn since(self, earlier: Self) -> Self {
        self.zip(earlier, u64::saturating_sub)
    }

    /// The sum of two sources. No sum of accepted counts saturates, because parents bound what they accept.
    #[inline]
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    pub(super) fn map(self, f: impl Fn(u64) -> u64) -> Self {
        Self::of_columns(self.columns().map(f))
    }

    #[inline]
    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        let (own, others) = (self.columns(), other.columns());
        Self::of_columns(std::array::from_fn(|at| f(own[at], others[at])))
    }
}

/// The counts of one key, and the part of them that arrived too late to describe the present rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All requests counted.
    pub counts: Counts,
    /// Late requests: they are counted but enter no rate, so that a client that reconnects does not look like
    /// a surge.
    pub late: Counts,
}

impl Tally {
    /// No requests.
    pub const ZERO: Self = Self {
        counts: Counts::ZERO,
        late: Counts::ZERO,
    };

    #[inline]
    pub(super) fn is_consistent(self) -> bool {
        self.counts.is_consistent() && self.counts.covers(self.late)
    }

    pub(super) fn consistent_part(self) -> Self {
        let counts = self.counts.consistent_part();
        Self {
            counts,
            late: self.late.zip(counts, u64::min),
        }
    }

    /// Returns true if both parts are at or above the parts of `other`.
    #[inline]
    pub fn covers(self, other: Self) -> bool {
        self.counts.covers(other.counts) && self.late.covers(other.late)
    }

    /// The join of two states of one tally.
    #[inline]
    pub fn merge(self, other: Self) -> Self {
        Self {
            counts: self.counts.merge(other.counts),
            late: self.late.merge(other.late),
        }
    }

    /// Returns the counts since `earlier`.
    #[inline]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            counts: self.counts.since(earlier.counts),
            late: self.late.since(earlier.late),
        }
    }

    /// The sum of two sources.
    #[inline]
    pub fn plus(self, other: Self) -> Self {
        Self {
            counts: self.counts.plus(other.counts),
            late: self.late.plus(other.late),
        }
    }
}
