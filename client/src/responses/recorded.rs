//! The decision about a request whose response is recorded, which a middleware asks for.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use plimsoll_core::decision::trace::TraceId;
use plimsoll_core::decision::{Reason, Refusal, Verdict};
use plimsoll_core::quantity::Rate;
use plimsoll_core::quota::Quota;

use super::Recorder;
use crate::hot::decision::Decided;
use crate::hot::table::Table;
use crate::hot::thread_counters::Pass;
use crate::limiter::layered::{Asking, Step};
use crate::limiter::{BucketHandle, Limiter, Request, TenantLimit};
use crate::setup::SetupProblem;

/// The decision about a request. An admitted request takes no reference count, which all threads would write.
pub enum Decision {
    /// Admitted without a decision, and unrecorded.
    Passed(Pass),
    /// Admitted; the recorder takes the response. `None` for a bucket without room, whose responses are not recorded.
    Admitted(Option<Recorder>),
    Refused(RefusedBy),
    Asking(Box<AskingFor>),
}

/// The limiter, bucket and quota that refused a request.
pub struct RefusedBy {
    pub refusal: Refusal,
    pub recorder: Recorder,
    pub quota: Option<Arc<Quota>>,
    table: Arc<Table>,
    key: u32,
}

/// A request that waits for the store of quotas. It ends as admitted or refused.
pub struct AskingFor {
    asking: Asking,
    pub recorder: Recorder,
    key: u32,
}

#[doc(hidden)]
impl Limiter {
    /// Decides about a request of one key. `trace` is evaluated only where it decides or the bucket has quotas, and
    /// `is_counted` tells whether a layer outside has counted the request for the bucket of the recorder. A request
    /// that does not wait is decided.
    #[inline]
    pub fn decide_recorded(
        &self,
        request: &Request<'_>,
        waits: bool,
        trace: impl FnOnce() -> Option<TraceId>,
        is_counted: impl FnOnce(Recorder) -> bool,
    ) -> Decision {
        let table = &self.table;
        // A cost of 0 would decide without counting.
        let Some(subject) = self.subject(&request.cost(request.cost.max(1))) else {
            return Decision::Admitted(None);
        };
        let recorder = table
            .responses
            .recorder_of_key(subject.bucket, subject.target.key);
        if is_counted(recorder) {
            return self.pass(Pass::CountedBefore);
        }
        if table.quotas.has(subject.bucket) {
            let step = table.begin(subject, trace(), waits);
            return by_quotas(table, step, recorder, subject.target.key);
        }
        let verdict = self.decide(subject.target, subject.cost, trace);
        Decision::of(table, Decided::of(verdict), recorder, subject.target.key)
    }

    /// Counts a request that passes without a decision.
    #[inline]
    pub fn pass(&self, pass: Pass) -> Decision {
        self.table.passes.count(pass);
        Decision::Passed(pass)
    }

    /// Raises a setup problem for the first request of each bucket that passed two layers.
    #[cold]
    pub fn raise_layer_twice(&self, recorder: Recorder) {
        let responses = &self.table.responses;
        if responses.on_stacked(recorder.bucket) {
            let bucket = responses.name(recorder.bucket).unwrap_or_default();
            self.table.problems.raise(SetupProblem::LayerTwice {
                bucket: bucket.to_owned(),
            });
        }
    }
}

#[doc(hidden)]
impl BucketHandle {
    /// Allocates the counters of responses, so that the first response allocates nothing.
    pub fn prepare_responses(&self) {
        self.table.responses.prepare(self.place.bucket as usize);
    }
}

#[cold]
fn by_quotas(table: &Arc<Table>, step: Step, recorder: Recorder, key: u32) -> Decision {
    match step {
        Step::Decided(decided) => Decision::of(table, decided, recorder, key),
        Step::Asking(asking) => Decision::Asking(Box::new(AskingFor {
            asking,
            recorder,
            key,
        })),
    }
}

impl Decision {
    #[inline]
    fn of(table: &Arc<Table>, decided: Decided, recorder: Recorder, key: u32) -> Self {
        match decided.verdict {
            Verdict::Admit => Self::Admitted(Some(recorder)),
            Verdict::Refuse(refusal) => Self::Refused(RefusedBy {
                refusal,
                recorder,
                quota: decided.quota,
                table: Arc::clone(table),
                key,
            }),
        }
    }
}

impl RefusedBy {
    pub fn bucket(&self) -> Option<&str> {
        self.table.responses.name(self.recorder.bucket)
    }

    /// Returns the limit of the bucket in requests/s.
    pub fn limit(&self) -> Option<f64> {
        let limit = self.table.limits.get(self.recorder.bucket);
        limit.per_second().map(Rate::per_second)
    }

    /// Returns the limit of the tenant, if that is the reason.
    pub fn tenant_limit(&self) -> Option<TenantLimit> {
        let is_reason = self.refusal.reason() == Reason::TenantLimit;
        self.table
            .tenant_limit(self.recorder.bucket, self.key)
            .filter(|_| is_reason)
    }
}

impl Future for AskingFor {
    type Output = Decision;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decision> {
        let decided = Pin::new(&mut self.asking).poll(cx);
        let of = |decided| Decision::of(&self.asking.table, decided, self.recorder, self.key);
        decided.map(of)
    }
}
