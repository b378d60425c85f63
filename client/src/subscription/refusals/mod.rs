//! Refusals by reason. The request path counts refusals of the coin and of the guard; their reasons follow
//! from the state of the key, which is read with every measurement, so they cost a decision nothing.

mod admissions;

use plimsoll_core::decision::Reason;
use plimsoll_core::report::Counts;
use plimsoll_core::stats::AdmissionCheck;

use crate::hot::table::{KeyPlace, Table};
use crate::hot::thread_counters::Outcome;

/// The refusals of every bucket by reason. The sums are exact; where the reason of a key changes, refusals
/// since the last measurement count for the new one.
#[derive(Default)]
pub(super) struct Refusals {
    /// By the id of a key: the counts that the sums have. A key that takes over an id continues its counts, maybe in
    /// another bucket.
    seen: Vec<Counts>,
    /// By bucket and reason.
    sums: Vec<[Refused; Reason::ALL.len()]>,
    /// By bucket: the decisions of the last seconds.
    admissions: Vec<AdmissionCheck>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) enforced: u64,
    pub(crate) would: u64,
}

impl Refusals {
    pub(super) fn add(&mut self, table: &Table, place: &KeyPlace, counts: Counts) {
        let key = place.key as usize;
        self.seen.resize(self.seen.len().max(key + 1), Counts::ZERO);
        // Most keys of a large table have no new requests, and reading more of each would miss the cache.
        if counts == self.seen[key] {
            return;
        }
        let bucket = table.keys.owner_of(place.key) as usize;
        self.sums
            .resize(self.sums.len().max(bucket + 1), Default::default());
        // A sum that is read during writes may be lower than the one before it.
        let new = counts.since(self.seen[key]);
        self.seen[key] = self.seen[key].plus(new);
        self.admissions
            .resize_with(self.sums.len(), AdmissionCheck::default);
        self.admissions[bucket].add(new);
        let word = table.target_of(*place).word();
        // Unlike `dropped`, `would_dropped` has the guard's part.
        let would_by_coin = new.would_dropped.saturating_sub(new.would_guard_dropped);
        for (outcome, enforced, would) in [
            (Outcome::Dropped, new.dropped, would_by_coin),
            (
                Outcome::GuardDropped,
                new.guard_dropped,
                new.would_guard_dropped,
            ),
        ] {
            let refused = &mut self.sums[bucket][word.reason(outcome) as usize];
            refused.enforced += enforced;
            refused.would += would;
        }
    }

    /// Returns the refusals of a bucket, in the order of [`Reason::ALL`]. Those by exact
    /// quotas come from the table, which counts them by reason.
    pub(super) fn of(&self, table: &Table, bucket: u32) -> [Refused; Reason::ALL.len()] {
        let mut sums = self.sums.get(bucket as usize).copied().unwrap_or_default();
        let [exceeded, degraded, would_exceeded, would_degraded, repeated] =
            table.layered.tally(bucket);
        for (reason, enforced, would) in [
            (
                Reason::TenantQuotaExceeded,
                exceeded + repeated,
                would_exceeded,
            ),
            (Reason::QuotaDegraded, degraded, would_degraded),
        ] {
            let sum = &mut sums[reason as usize];
            sum.enforced += enforced;
            sum.would += would;
        }
        sums
    }
}
