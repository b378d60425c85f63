//! The columns of counts, split so that what almost every report entry changes stays on one cache line: those of coin
//! and guard, and those of exact quotas, which most keys do not have.

use plimsoll_core::report::Counts;

/// The counts of coin and guard.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CoinColumns {
    offered: u64,
    dropped: u64,
    guard_dropped: u64,
    would_dropped: u64,
    would_guard_dropped: u64,
}

/// The counts of exact quotas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct QuotaColumns {
    quota_dropped: u64,
    would_quota_dropped: u64,
    quota_repeated: u64,
}

impl CoinColumns {
    /// Returns the counts of these columns and those of quotas together.
    pub(super) const fn with(self, quotas: QuotaColumns) -> Counts {
        let Self { offered, dropped, guard_dropped, would_dropped, would_guard_dropped } = self;
        let QuotaColumns { quota_dropped, would_quota_dropped, quota_repeated } = quotas;
        Counts {
            offered,
            dropped,
            guard_dropped,
            would_dropped,
            would_guard_dropped,
            quota_dropped,
            would_quota_dropped,
            quota_repeated,
        }
    }

    /// Adds the columns of coin and guard of `counts`.
    #[inline]
    pub(super) fn add(&mut self, counts: Counts) {
        let sum = self.with(QuotaColumns::default()).plus(counts);
        let Counts { offered, dropped, guard_dropped, would_dropped, would_guard_dropped, .. } = sum;
        *self = Self { offered, dropped, guard_dropped, would_dropped, would_guard_dropped };
    }
}

impl QuotaColumns {
    /// Returns the columns of quotas of `counts`.
    #[inline]
    pub(super) const fn of(counts: Counts) -> Self {
        let Counts { quota_dropped, would_quota_dropped, quota_repeated, .. } = counts;
        Self { quota_dropped, would_quota_dropped, quota_repeated }
    }

    /// Adds the columns of quotas of `counts`.
    pub(super) fn add(&mut self, counts: Counts) {
        *self = Self::of(CoinColumns::default().with(*self).plus(counts));
    }

    /// Returns true if there is none.
    #[inline]
    pub(super) const fn is_zero(self) -> bool {
        self.quota_dropped | self.would_quota_dropped | self.quota_repeated == 0
    }
}
