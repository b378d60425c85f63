//! The decision of a layer about a request: by rules, or by a function of the service.

use std::sync::Arc;

use plimsoll_core::decision::{Refusal, Verdict};
use plimsoll_core::quota::Quota;

use super::request::trace::trace_of;
use super::{Head, Pass, Rules, stacked};
use crate::hot::table::Table;
use crate::limiter::Decided;
use crate::limiter::layered::{Asking, Step};
use crate::responses::Recorder;
use crate::{Limiter, Request};

/// True if a request may wait for the store of quotas before it reaches the service.
pub(super) const WAITS: bool = cfg!(feature = "quota");

type RequestOf = dyn for<'a> Fn(Head<'a>) -> Option<Request<'a>> + Send + Sync;

pub(super) enum Decider {
    Rules(Rules),
    Function(Limiter, Box<RequestOf>),
}

/// The decision about a request. An admitted request takes no reference count, which all threads would write.
pub(super) enum Decision {
    /// Admitted without a decision, and unrecorded.
    Passed(Pass),
    /// Admitted; the recorder takes the response.
    Admitted(Option<Recorder>),
    Refused(RefusedBy),
    Asking(Box<AskingFor>),
}

pub(crate) struct RefusedBy {
    pub(super) refusal: Refusal,
    pub(super) table: Arc<Table>,
    pub(super) recorder: Recorder,
    pub(super) quota: Option<Arc<Quota>>,
}

pub(super) struct AskingFor {
    pub(super) asking: Asking,
    pub(super) recorder: Recorder,
}

impl Decider {
    #[inline]
    pub(super) fn decide(&self, head: Head<'_>) -> Decision {
        match self {
            Self::Rules(rules) => {
                match rules.ask_uncounted(head, |request| decide(&rules.limiter, request, head)) {
                    Ok(decision) => decision,
                    Err(pass) => passed(&rules.limiter.table, pass),
                }
            }
            Self::Function(limiter, function) => match function(head) {
                Some(request) => decide(limiter, &request, head),
                None => passed(&limiter.table, Pass::NoRule),
            },
        }
    }
}

fn passed(table: &Table, pass: Pass) -> Decision {
    table.passes.count(pass);
    Decision::Passed(pass)
}

#[inline]
fn decide(limiter: &Limiter, request: &Request<'_>, head: Head<'_>) -> Decision {
    let table = &limiter.table;
    // Nothing passes uncounted.
    let Some(subject) = limiter.subject(&request.cost(request.cost.max(1))) else {
        return Decision::Admitted(None);
    };
    if stacked::is_counted(head, table, subject.bucket) {
        return passed(table, Pass::CountedBefore);
    }
    let recorder = table
        .responses
        .recorder_of_key(subject.bucket, subject.target.key);
    if table.quotas.has(subject.bucket) {
        return by_quotas(table, table.begin(subject, trace_of(head), WAITS), recorder);
    }
    let verdict = limiter.decide(subject.target, subject.cost, || trace_of(head));
    Decision::of(table, Decided::of(verdict), recorder)
}

#[cold]
fn by_quotas(table: &Arc<Table>, step: Step, recorder: Recorder) -> Decision {
    match step {
        Step::Decided(decided) => Decision::of(table, decided, recorder),
        Step::Asking(asking) => Decision::Asking(Box::new(AskingFor { asking, recorder })),
    }
}

impl Decision {
    #[inline]
    fn of(table: &Arc<Table>, decided: Decided, recorder: Recorder) -> Self {
        match decided.verdict {
            Verdict::Admit => Self::Admitted(Some(recorder)),
            Verdict::Refuse(refusal) => Self::Refused(RefusedBy {
                refusal,
                table: Arc::clone(table),
                recorder,
                quota: decided.quota,
            }),
        }
    }
}

impl AskingFor {
    pub(super) fn decided(&self, decided: Decided) -> Decision {
        Decision::of(&self.asking.table, decided, self.recorder)
    }
}
