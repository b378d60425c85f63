//! The layered decision about a request of several keys: all or none admit it.

use futures_util::future::join_all;
use plimsoll_core::decision::trace::TraceId;
use plimsoll_core::names::Encoded;
use plimsoll_core::quota::BucketQuotas;
use smallvec::{SmallVec, smallvec};

use super::exact::{Asked, Exact, Taking};
use super::one::{Subject, name_of};
use crate::hot::decision::{Decided, Part};
use crate::hot::thread_counters::QuotaOutcome;
use crate::limiter::handles::thread_ctx;
use crate::limiter::{Limiter, Request};

/// One item for each key of a request; a few take no allocation.
pub(crate) type Each<T> = SmallVec<[T; 8]>;

struct WithQuotas<'a> {
    at: usize,
    quotas: BucketQuotas,
    tenant: Encoded<'a>,
    subject: Subject<'a>,
}

impl WithQuotas<'_> {
    fn asked(&self) -> Asked<'_> {
        Asked {
            quotas: &self.quotas,
            tenant: &self.tenant,
            cost: self.subject.cost.max(1),
        }
    }
}

async fn answer(taking: Taking) -> Exact {
    match taking {
        Taking::Ready(exact) => exact,
        Taking::Asking(answer) => answer.await,
    }
}

impl Limiter {
    /// Decides about each key of a request: by one draw, then by their quotas. If any of them
    /// refuses, the whole request is refused, and counts as dropped for all keys. A refusal from
    /// memory counts for its own key only. A request that does not wait is ready with the first poll.
    pub(crate) async fn each(&self, request: &Request<'_>, waits: bool) -> Each<Decided> {
        match request.several() {
            None => smallvec![self.begin(request, waits).ended().await],
            // By its key's dithered coin, which is more even than an independent draw.
            Some([one]) => {
                smallvec![self.begin(&one.trace(request.trace), waits).ended().await]
            }
            Some(requests) => {
                let subjects = requests.iter().map(|request| self.subject(request));
                let subjects: Each<Option<Subject<'_>>> = subjects.collect();
                let mut buckets = subjects.iter().flatten().map(|subject| subject.bucket);
                match buckets.any(|bucket| self.table.quotas.has(bucket)) {
                    false => self.by_coin(&subjects, request.trace),
                    // Far larger than the rest, of which each request would have the size.
                    true => Box::pin(self.each_by_quotas(&subjects, request.trace, waits)).await,
                }
            }
        }
    }

    async fn each_by_quotas(
        &self,
        subjects: &[Option<Subject<'_>>],
        trace: Option<TraceId>,
        waits: bool,
    ) -> Each<Decided> {
        let table = &*self.table;
        let keys = subjects.iter().enumerate().filter_map(|(at, subject)| {
            let subject = (*subject)?;
            let quotas = table.quotas_of(subject.bucket)?;
            let tenant = name_of(subject.tenant);
            Some(WithQuotas {
                at,
                quotas: quotas.of_tenant(&tenant, table.plan_of(subject.target.key, subject.plan)),
                tenant,
                subject,
            })
        });
        let (enforced, shadowed): (Each<WithQuotas<'_>>, Each<WithQuotas<'_>>) =
            keys.partition(|key| key.subject.is_enforced());
        let Some(store) = table.layered.store() else {
            return self.by_coin(subjects, trace);
        };
        if !waits {
            enforced
                .iter()
                .chain(&shadowed)
                .for_each(|key| table.raise_not_waiting(key.subject.bucket));
        }
        let asked: Each<Asked<'_>> = enforced.iter().map(WithQuotas::asked).collect();
        if let Some(refused @ Exact::Refused { at, .. }) = store.remembered(&asked)
            && let Some(key) = enforced.get(at)
        {
            let mut decided = smallvec![Decided::ADMITTED; subjects.len()];
            set(&mut decided, key.at, |_| table.repeat(key.subject, refused));
            return decided;
        }
        let remembered: Each<_> = shadowed
            .iter()
            .map(|key| store.remembered(&[key.asked()]))
            .collect();
        let mut decided = self.by_coin(subjects, trace);
        if decided.iter().any(|decided| !decided.verdict.is_admit()) {
            return decided;
        }
        // A key without a cost takes nothing.
        let costly: Each<_> = enforced.iter().filter(|key| key.subject.cost > 0).collect();
        let asked: Each<Asked<'_>> = costly.iter().map(|key| key.asked()).collect();
        if !asked.is_empty()
            && let exact @ Exact::Refused { at, reason, .. } =
                answer(store.take(&asked, waits)).await
        {
            let refusing = costly.get(at).map(|key| key.at);
            // The request counts as refused for its other keys, as far as coin and guard let it pass.
            for (at, (subject, decided)) in subjects.iter().zip(&decided).enumerate() {
                if let Some(subject) =
                    subject.filter(|_| Some(at) != refusing && decided.withheld.is_none())
                {
                    table.count_quota(subject, QuotaOutcome::Dropped, reason);
                }
            }
            if let Some(key) = costly.get(at) {
                set(&mut decided, key.at, |by_coin| {
                    table.settle(key.subject, by_coin, exact)
                });
            }
            return decided;
        }
        let taking = shadowed.iter().zip(remembered).map(|(key, remembered)| {
            match (remembered, key.subject.cost) {
                (Some(refused), _) => Taking::Ready(refused),
                (None, 0) => Taking::Ready(Exact::Granted),
                // The request is served with any answer, so each key is debited by itself.
                (None, _) => store.take(&[key.asked()], waits),
            }
        });
        // All wait together, so that the request waits for one deadline.
        let answers = join_all(taking.map(answer)).await;
        for (key, exact) in shadowed.iter().zip(answers) {
            set(&mut decided, key.at, |by_coin| {
                table.settle(key.subject, by_coin, exact)
            });
        }
        decided
    }

    fn by_coin(&self, subjects: &[Option<Subject<'_>>], trace: Option<TraceId>) -> Each<Decided> {
        let parts = subjects
            .iter()
            .flatten()
            .map(|subject| Part::new(subject.target, subject.cost));
        let mut parts: Each<Part> = parts.collect();
        let (_, jitter) = self
            .table
            .decide_parts(&mut parts, trace, thread_ctx(&self.table));
        let mut parts = parts.iter().map(|part| part.decided(jitter));
        let decided = |subject: &Option<Subject<'_>>| subject.and_then(|_| parts.next());
        subjects
            .iter()
            .map(decided)
            .map(|decided| decided.unwrap_or(Decided::ADMITTED))
            .collect()
    }
}

fn set(decided: &mut [Decided], at: usize, new: impl FnOnce(Decided) -> Decided) {
    if let Some(decided) = decided.get_mut(at) {
        *decided = new(std::mem::replace(decided, Decided::ADMITTED));
    }
}
