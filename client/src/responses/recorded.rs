//! The decision about a request whose response is recorded, which a middleware asks for.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use plimsoll_core::decision::trace::TraceId;
use plimsoll_core::decision::{Reason, Refusal, Verdict};
use plimsoll_core::quantity::Rate;
use plimsoll_core::quota::Quota;
use smallvec::{SmallVec, smallvec};

use super::Recorder;
use crate::hot::table::Table;
use crate::hot::thread_counters::Pass;
use crate::limiter::layered::together::{DecidedTogether, DecidingTogether};
use crate::limiter::layered::{Asking, Each, Step};
use crate::limiter::{BucketHandle, Limiter, Request, TenantLimit};
use crate::setup::SetupProblem;

/// The recorders of a request, one for each bucket that it counts for. One or two take no allocation.
pub type Recorders = SmallVec<[Recorder; 2]>;

/// The decision about a request. An admitted request takes no reference count, which all threads would write.
pub enum Decision {
    /// Admitted without a decision, and unrecorded.
    Passed(Pass),
    /// Admitted; the recorders take the response. None for a bucket without room, whose responses are not recorded.
    Admitted(Recorders),
    Refused(RefusedBy),
    Asking(Box<AskingFor>),
}

/// The limiter, bucket and quota that refused a request.
pub struct RefusedBy {
    pub refusal: Refusal,
    pub recorder: Recorder,
    pub quota: Option<Arc<Quota>>,
    table: Arc<Table>,
}

/// A request that waits for the store of quotas. It ends as admitted or refused.
pub struct AskingFor {
    asking: AskingOf,
    table: Arc<Table>,
    pub recorders: Recorders,
}

enum AskingOf {
    One(Asking),
    /// Never locked. It makes the future `Sync`, which services may need.
    Several(Mutex<DecidingTogether>),
}

#[doc(hidden)]
impl Limiter {
    /// Decides about a request. `trace` is evaluated where it decides, for a bucket with quotas, and for several keys.
    /// `is_counted` tells whether a layer outside has counted the request for the bucket of the recorder. A request
    /// that does not wait is decided.
    #[inline]
    pub fn decide_recorded(
        &self,
        request: &Request<'_>,
        waits: bool,
        trace: impl FnOnce() -> Option<TraceId>,
        is_counted: impl Fn(Recorder) -> bool,
    ) -> Decision {
        if let Some(requests) = request.several() {
            return self.decide_several(requests, waits, trace(), &is_counted);
        }
        let table = &self.table;
        // A cost of 0 would decide without counting.
        let counted = (request.cost == 0).then(|| request.cost(1));
        let request = counted.as_ref().unwrap_or(request);
        let Some(subject) = self.subject(request) else {
            return Decision::Admitted(Recorders::new());
        };
        let recorder = table
            .responses
            .recorder_of_key(subject.bucket, subject.target.key);
        if is_counted(recorder) {
            return self.pass(Pass::CountedBefore);
        }
        if table.quotas.has(subject.bucket) {
            let step = table.begin(subject, trace(), waits);
            return by_quotas(table, step, recorder);
        }
        match self.decide(subject.target, subject.cost, trace) {
            Verdict::Admit => Decision::Admitted(smallvec![recorder]),
            Verdict::Refuse(refusal) => Decision::refused(table, refusal, recorder, None),
        }
    }

    /// Decides about the keys that no layer outside has counted: all of them admit the request, or none is charged.
    #[inline(never)]
    fn decide_several(
        &self,
        requests: &[Request<'_>],
        waits: bool,
        trace: Option<TraceId>,
        is_counted: &dyn Fn(Recorder) -> bool,
    ) -> Decision {
        let table = &self.table;
        let mut is_any_counted = false;
        let (mut asked, mut recorders) = (Each::new(), Recorders::new());
        for request in requests {
            let request = request.cost(request.cost.max(1));
            let Some(subject) = self.subject(&request) else {
                continue;
            };
            let recorder = table
                .responses
                .recorder_of_key(subject.bucket, subject.target.key);
            if is_counted(recorder) {
                is_any_counted = true;
            } else {
                asked.push(request);
                recorders.push(recorder);
            }
        }
        if asked.is_empty() && is_any_counted {
            return self.pass(Pass::CountedBefore);
        }
        match self.decide_together(&asked, trace, waits) {
            Ok(decided) => Decision::of(table, decided, recorders),
            Err(deciding) => {
                let asking = AskingOf::Several(Mutex::new(deciding));
                Decision::asking(table, asking, recorders)
            }
        }
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
        self.table.responses.blocks(self.place.bucket as usize);
    }
}

#[cold]
fn by_quotas(table: &Arc<Table>, step: Step, recorder: Recorder) -> Decision {
    match step {
        Step::Decided(decided) => Decision::of(table, (0, decided), smallvec![recorder]),
        Step::Asking(asking) => Decision::asking(table, AskingOf::One(asking), smallvec![recorder]),
    }
}

impl Decision {
    #[inline]
    fn of(table: &Arc<Table>, (at, decided): DecidedTogether, recorders: Recorders) -> Self {
        match (decided.verdict, recorders.get(at)) {
            (Verdict::Refuse(refusal), Some(recorder)) => {
                Self::refused(table, refusal, *recorder, decided.quota)
            }
            _ => Self::Admitted(recorders),
        }
    }

    #[inline]
    fn refused(
        table: &Arc<Table>,
        refusal: Refusal,
        recorder: Recorder,
        quota: Option<Arc<Quota>>,
    ) -> Self {
        Self::Refused(RefusedBy {
            refusal,
            recorder,
            quota,
            table: Arc::clone(table),
        })
    }

    fn asking(table: &Arc<Table>, asking: AskingOf, recorders: Recorders) -> Self {
        Self::Asking(Box::new(AskingFor {
            asking,
            table: Arc::clone(table),
            recorders,
        }))
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
        if self.refusal.reason() != Reason::TenantLimit {
            return None;
        }
        self.table
            .tenant_limit(self.recorder.bucket, self.recorder.key)
    }
}

impl Future for AskingFor {
    type Output = Decision;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decision> {
        let decided = match &mut self.asking {
            AskingOf::One(asking) => Pin::new(asking).poll(cx).map(|decided| (0, decided)),
            AskingOf::Several(deciding) => {
                let deciding = deciding.get_mut().unwrap_or_else(PoisonError::into_inner);
                deciding.as_mut().poll(cx)
            }
        };
        decided.map(|decided| {
            let recorders = std::mem::take(&mut self.recorders);
            Decision::of(&self.table, decided, recorders)
        })
    }
}
