//! The layered decision about a request of one key.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use plimsoll_core::decision::trace::TraceId;
use plimsoll_core::names::{DEFAULT_TENANT, Encoded};
use plimsoll_core::quota::BucketQuotas;

use super::answer::Subject;
use super::exact::{Answer, Asked, Exact, Taking};
use crate::hot::table::{Table, Target};
use crate::limiter::Decided;
use crate::limiter::handles::thread_ctx;

/// A decision, or the question to the store on its way.
#[derive(Debug)]
pub(crate) enum Step {
    Decided(Decided),
    Asking(Asking),
}

/// A request that coin and guard admit, while the store is asked. Dropping it leaves the request counted as admitted,
/// and what the store has debited is spent.
pub(crate) struct Asking {
    table: Arc<Table>,
    subject: Subject,
    /// The decision of coin and guard.
    decided: Option<Decided>,
    /// Never locked: it makes the future `Sync`, which those of services may have to be.
    answer: Mutex<Answer>,
}

impl Future for Asking {
    type Output = Decided;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decided> {
        let this = &mut *self;
        let answer = this.answer.get_mut().unwrap_or_else(PoisonError::into_inner);
        let exact = ready!(answer.as_mut().poll(cx));
        let decided = this.decided.take().unwrap_or(Decided::ADMITTED);
        Poll::Ready(this.table.settle(this.subject, decided, exact))
    }
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").field("subject", &self.subject).finish_non_exhaustive()
    }
}

/// Returns the name by which the quotas of a tenant are kept: that of the class `default` for an empty one. A tenant
/// without room in the table has a quota of its own all the same.
pub(in crate::limiter) fn name_of(tenant: &str) -> Encoded<'_> {
    Encoded::of(tenant).unwrap_or(Encoded::Plain(DEFAULT_TENANT))
}

impl Table {
    /// Returns the quotas that a request of a bucket is subject to, if there is a store to ask.
    #[inline]
    pub(crate) fn quotas_of(&self, bucket: u32) -> Option<BucketQuotas> {
        if self.quotas.has(bucket) { self.quotas_with_store(bucket) } else { None }
    }

    #[cold]
    fn quotas_with_store(&self, bucket: u32) -> Option<BucketQuotas> {
        self.layered.store().and_then(|_| self.quotas.get(bucket)).filter(|quotas| !quotas.is_empty())
    }

    /// Decides about a request with quotas, which counts as `cost` requests, of a tenant by its name.
    #[inline(never)]
    pub(crate) fn decide_layered(
        self: &Arc<Self>,
        quotas: &BucketQuotas,
        (bucket, tenant): (u32, &str),
        target: Target,
        cost: u32,
        trace: Option<TraceId>,
    ) -> Step {
        let Some(store) = self.layered.store() else {
            return Step::Decided(self.decide_in_full(target, cost, trace, thread_ctx(self)));
        };
        let subject = Subject { target, bucket, cost };
        let asked = [Asked { quotas, tenant, cost: cost.max(1) }];
        let remembered = store.remembered(&asked).filter(|exact| *exact != Exact::Granted);
        let remembered = match remembered {
            Some(refused) if subject.is_enforced() => return Step::Decided(self.repeat(subject, refused)),
            other => other,
        };
        let decided = self.decide_in_full(target, cost, trace, thread_ctx(self));
        if !decided.verdict.is_admit() {
            return Step::Decided(decided);
        }
        let taking = match remembered {
            Some(refused) => Taking::Ready(refused),
            None if cost == 0 => Taking::Ready(Exact::Granted),
            None => store.take(&asked),
        };
        match taking {
            Taking::Ready(exact) => Step::Decided(self.settle(subject, decided, exact)),
            Taking::Asking(answer) => Step::Asking(Asking {
                table: Arc::clone(self),
                subject,
                decided: Some(decided),
                answer: Mutex::new(answer),
            }),
        }
    }
}
