//! The layered decision about a request that is subject to several keys: all or none admit it.

use futures_util::future::join_all;
use plimsoll_core::decision::Reason;
use plimsoll_core::decision::trace::TraceId;
use plimsoll_core::names::Encoded;
use plimsoll_core::quota::BucketQuotas;
use smallvec::SmallVec;

use super::answer::Subject;
use super::exact::{Asked, Exact, Taking};
use super::one::name_of;
use super::store::Store;
use crate::hot::table::Target;
use crate::limiter::requests::Targets;
use crate::limiter::{Decided, KeyRequest, Limiter};

/// The keys with quotas of one request that take no allocation.
const FEW: usize = 4;

/// A key with quotas.
#[derive(Debug)]
struct WithQuotas<'a> {
    /// The index of the key in the request.
    at: usize,
    quotas: BucketQuotas,
    tenant: Encoded<'a>,
    subject: Subject,
}

impl WithQuotas<'_> {
    fn asked(&self) -> Asked<'_> {
        Asked { quotas: &self.quotas, tenant: &self.tenant, cost: self.subject.cost.max(1) }
    }
}

/// The keys of a request whose quotas are asked.
type Keys<'a> = SmallVec<[WithQuotas<'a>; FEW]>;

/// Returns the answer of the store.
async fn answer(taking: Taking) -> Exact {
    match taking {
        Taking::Ready(exact) => exact,
        Taking::Asking(answer) => answer.await,
    }
}

impl Limiter {
    /// Decides about several keys, of which some have quotas. The quotas of the enforced keys are taken by one call.
    pub(super) async fn decide_together_by_quotas(
        &self,
        store: &Store,
        requests: &[KeyRequest<'_>],
        trace: Option<TraceId>,
        decided: &mut Vec<Decided>,
    ) {
        let targets: Targets = requests.iter().map(|request| self.target(*request)).collect();
        let keys = self.with_quotas(requests, &targets);
        let (enforced, shadowed): (Keys<'_>, Keys<'_>) =
            keys.into_iter().partition(|key| key.subject.is_enforced());
        let asked: SmallVec<[Asked<'_>; FEW]> = enforced.iter().map(WithQuotas::asked).collect();
        if let Some((key, refused)) = refusing(&enforced, store.remembered(&asked)) {
            decided.clear();
            decided.resize(requests.len(), Decided::ADMITTED);
            set(decided, key.at, self.table.repeat(key.subject, refused));
            return;
        }
        let remembered = shadowed.iter().map(|key| store.remembered(&[key.asked()]));
        let remembered: SmallVec<[Option<Exact>; FEW]> = remembered.collect();
        self.decide_targets(requests, &targets, trace, decided);
        if decided.iter().any(|decided| !decided.verdict.is_admit()) {
            return;
        }
        // A key without a cost takes nothing.
        let asked: SmallVec<[Asked<'_>; FEW]> = enforced.iter().filter_map(costly).collect();
        if !asked.is_empty() {
            let exact = answer(store.take(&asked)).await;
            let taken: SmallVec<[&WithQuotas<'_>; FEW]> =
                enforced.iter().filter(|key| key.subject.cost > 0).collect();
            if let Exact::Refused { at, reason, .. } = exact {
                let refusing = taken.get(at).copied();
                self.count_others(requests, &targets, decided, refusing.map(|key| key.at), reason);
                if let Some(key) = refusing {
                    let by_coin = decided.get(key.at).cloned().unwrap_or(Decided::ADMITTED);
                    set(decided, key.at, self.table.settle(key.subject, by_coin, exact));
                }
                return;
            }
        }
        let taking =
            shadowed.iter().zip(remembered).map(|(key, remembered)| match (remembered, key.subject.cost) {
                (Some(refused), _) => Taking::Ready(refused),
                (None, 0) => Taking::Ready(Exact::Granted),
                // The request is served whatever the answer is, so each key is debited by itself.
                (None, _) => store.take(&[key.asked()]),
            });
        // All wait at once, so that the request waits for one deadline.
        let answers = join_all(taking.map(answer)).await;
        for (key, exact) in shadowed.iter().zip(answers) {
            let by_coin = decided.get(key.at).cloned().unwrap_or(Decided::ADMITTED);
            set(decided, key.at, self.table.settle(key.subject, by_coin, exact));
        }
    }

    /// Returns the keys that have quotas.
    fn with_quotas<'a>(&self, requests: &[KeyRequest<'a>], targets: &Targets) -> Keys<'a> {
        let keys = requests.iter().zip(targets).enumerate().filter_map(|(at, (request, target))| {
            let subject = self.subject(*target, request.cost)?;
            let quotas = self.table.quotas_of(subject.bucket)?;
            Some(WithQuotas { at, quotas, tenant: name_of(request.tenant), subject })
        });
        keys.collect()
    }

    /// Counts a request that a quota refused for its other keys, as far as coin and guard let it pass.
    fn count_others(
        &self,
        requests: &[KeyRequest<'_>],
        targets: &Targets,
        decided: &[Decided],
        refusing: Option<usize>,
        reason: Reason,
    ) {
        for (at, ((request, target), decided)) in requests.iter().zip(targets).zip(decided).enumerate() {
            let passed = Some(at) != refusing && decided.withheld.is_none();
            if let Some(subject) = self.subject(*target, request.cost).filter(|_| passed) {
                self.table.count_refused_together(subject, reason);
            }
        }
    }

    fn subject(&self, target: Option<Target>, cost: u32) -> Option<Subject> {
        let target = target?;
        Some(Subject { target, bucket: self.table.keys.owner_of(target.key), cost })
    }
}

/// Returns the key that refuses, with the refusal.
fn refusing<'k, 'a>(keys: &'k Keys<'a>, exact: Option<Exact>) -> Option<(&'k WithQuotas<'a>, Exact)> {
    match exact {
        Some(refused @ Exact::Refused { at, .. }) => Some((keys.get(at)?, refused)),
        _ => None,
    }
}

fn costly<'k>(key: &'k WithQuotas<'_>) -> Option<Asked<'k>> {
    (key.subject.cost > 0).then(|| key.asked())
}

fn set(decided: &mut [Decided], at: usize, new: Decided) {
    if let Some(decided) = decided.get_mut(at) {
        *decided = new;
    }
}
