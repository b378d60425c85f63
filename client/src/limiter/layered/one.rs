//! The layered decision about a request of one key.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use plimsoll_core::decision::trace::TraceId;
use plimsoll_core::names::{DEFAULT_TENANT, Encoded};
use plimsoll_core::quota::BucketQuotas;

use super::exact::{Answer, Asked, Exact, Taking};
use crate::hot::decision::Decided;
use crate::hot::table::{Table, Target};
use crate::limiter::handles::thread_ctx;

#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) target: Target,
    pub(crate) bucket: u32,
    pub(crate) tenant: &'a str,
    /// The plan of the request, which its quotas follow; empty without one.
    pub(crate) plan: &'a str,
    /// The number of requests that the request counts as; 0 to decide without counting.
    pub(crate) cost: u32,
}

impl Subject<'_> {
    pub(super) const fn is_enforced(self) -> bool {
        self.target.word().is_enforced()
    }
}

pub(crate) enum Step {
    Decided(Decided),
    Asking(Asking),
}

impl Step {
    pub(crate) async fn ended(self) -> Decided {
        match self {
            Self::Decided(decided) => decided,
            Self::Asking(asking) => asking.await,
        }
    }
}

/// A request that coin and guard admit, while the store is asked. Dropping it leaves the request counted as
/// admitted, and what the store debits for it is given back.
pub(crate) struct Asking {
    table: Arc<Table>,
    subject: Subject<'static>,
    /// The decision of coin and guard.
    decided: Option<Decided>,
    /// Never locked. It makes the future `Sync`, which services may need.
    answer: Mutex<Answer>,
}

impl Future for Asking {
    type Output = Decided;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decided> {
        let this = &mut *self;
        let answer = this
            .answer
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let exact = ready!(answer.as_mut().poll(cx));
        let decided = this.decided.take().unwrap_or(Decided::ADMITTED);
        Poll::Ready(this.table.settle(this.subject, decided, exact))
    }
}

/// Returns the name of a tenant's quotas: the class `default` for an empty tenant. A tenant without
/// room in the table has its own quota anyway.
pub(crate) fn name_of(tenant: &str) -> Encoded<'_> {
    Encoded::of(tenant).unwrap_or(Encoded::Plain(DEFAULT_TENANT))
}

impl Table {
    /// Returns the plan that the quotas of a request follow: `plan` of the request, or else that of its key, from the
    /// catalogue or from an earlier request. Empty without one.
    pub(crate) fn plan_of<'a>(&'a self, key: u32, plan: &'a str) -> &'a str {
        match plan {
            "" => self.classes.plan_of(key).unwrap_or_default(),
            plan => plan,
        }
    }

    /// Returns the exact quotas of a bucket; `None` without quotas or without a store.
    #[inline]
    pub(crate) fn quotas_of(&self, bucket: u32) -> Option<BucketQuotas> {
        self.layered.store().and_then(|_| self.quotas.get(bucket))
    }

    /// Begins to decide about a request, by the quotas of its bucket if it has any. A request that
    /// does not wait is decided.
    pub(crate) fn begin(
        self: &Arc<Self>,
        of: Subject<'_>,
        trace: Option<TraceId>,
        waits: bool,
    ) -> Step {
        let by_coin = || self.decide_in_full(of.target, of.cost, trace, thread_ctx(self));
        let (Some(quotas), Some(store)) = (self.quotas_of(of.bucket), self.layered.store()) else {
            return Step::Decided(by_coin());
        };
        if !waits {
            self.raise_not_waiting(of.bucket);
        }
        let tenant = name_of(of.tenant);
        let asked = [Asked {
            quotas: &quotas.of_tenant(&tenant, self.plan_of(of.target.key, of.plan)),
            tenant: &tenant,
            cost: of.cost.max(1),
        }];
        let remembered = store.remembered(&asked);
        if let Some(refused) = remembered.clone().filter(|_| of.is_enforced()) {
            return Step::Decided(self.repeat(of, refused));
        }
        let decided = by_coin();
        if !decided.verdict.is_admit() {
            return Step::Decided(decided);
        }
        let taking = match remembered {
            Some(refused) => Taking::Ready(refused),
            None if of.cost == 0 => Taking::Ready(Exact::Granted),
            None => store.take(&asked, waits),
        };
        match taking {
            Taking::Ready(exact) => Step::Decided(self.settle(of, decided, exact)),
            Taking::Asking(answer) => Step::Asking(Asking {
                table: Arc::clone(self),
                subject: Subject {
                    target: of.target,
                    bucket: of.bucket,
                    tenant: "",
                    plan: "",
                    cost: of.cost,
                },
                decided: Some(decided),
                answer: Mutex::new(answer),
            }),
        }
    }
}
