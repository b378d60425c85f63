//! Joins the answer of the exact layer with a decision of coin and guard, and counts the refusals of quotas.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::decision::{Reason, Refusal, Verdict, WaitClass};
use plimsoll_core::quota::Quota;

use super::exact::Exact;
use super::one::Subject;
use crate::hot::decision::COST_MAX;
use crate::hot::decision::Decided;
use crate::hot::rng::DrawSource;
use crate::hot::table::Table;
use crate::hot::thread_counters::QuotaOutcome;
use crate::limiter::handles::thread_ctx;
use crate::setup::SetupProblem;

impl Table {
    /// Raises the setup problem of requests that are decided without waiting although their bucket has quotas.
    pub(super) fn raise_not_waiting(&self, bucket: u32) {
        if self.quotas.mark_decided_in_memory(bucket) {
            let bucket = self.responses.name(bucket).unwrap_or_default().to_owned();
            self.problems.raise(SetupProblem::QuotasInMemory { bucket });
        }
    }

    /// Refuses a request from memory, before the coin.
    pub(super) fn repeat(&self, of: Subject<'_>, refused: Exact) -> Decided {
        self.count_quota(of, QuotaOutcome::Repeated, Reason::TenantQuotaExceeded);
        self.refuse(of, refused)
    }

    /// Applies the answer of the exact layer to a request that coin and guard admit.
    pub(super) fn settle(&self, of: Subject<'_>, decided: Decided, exact: Exact) -> Decided {
        let Exact::Refused {
            reason, ref quota, ..
        } = exact
        else {
            return decided;
        };
        if of.is_enforced() {
            self.count_quota(of, QuotaOutcome::Dropped, reason);
            return self.refuse(of, exact);
        }
        if decided.withheld.is_some() {
            // Only what coin and guard let pass is a refusal of the quota.
            return decided;
        }
        self.count_quota(of, QuotaOutcome::WouldDropped, reason);
        Decided {
            withheld: Some(reason),
            quota: Some(Arc::clone(quota)),
            ..decided
        }
    }

    pub(super) fn count_quota(&self, of: Subject<'_>, outcome: QuotaOutcome, reason: Reason) {
        if of.cost == 0 {
            return;
        }
        let cost = of.cost.min(COST_MAX);
        // The coin's decision, if there was one, was counted before. Should the key's id be tombstoned meanwhile, it
        // is not reused within the deadline of a store.
        self.counters.quotas.add(of.target.key, outcome, cost);
        self.layered.count(of.bucket, outcome, reason, cost);
    }

    fn refuse(&self, of: Subject<'_>, exact: Exact) -> Decided {
        let Exact::Refused {
            quota,
            reason,
            retry_after,
            ..
        } = exact
        else {
            return Decided::ADMITTED;
        };
        let refusal = match reason {
            Reason::TenantQuotaExceeded => {
                Refusal::until_reset(retry_after.unwrap_or_else(|| every(&quota)))
            }
            reason => {
                let class = retry_after.map_or(of.target.word().class(), WaitClass::of);
                Refusal::new(reason, class, thread_ctx(self).draws.jitter())
            }
        };
        Decided {
            verdict: Verdict::Refuse(refusal),
            withheld: None,
            quota: Some(quota),
        }
    }
}

/// Returns the refill interval: the wait after a refusal of a request for more than a full quota.
fn every(quota: &Arc<Quota>) -> Duration {
    Duration::from_millis(quota.rate.every_ms())
}
