//! The decision about the descriptors of one request: all are compared with the rules, then the limits that they bring
//! along and their keys are asked, and the request is admitted if none refuses.

use std::borrow::Cow;
use std::time::Instant;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use plimsoll_client::internals::Decided;
use plimsoll_client::{Limiter, Peek, QuotaLeft, Reason, Refusal, Request, Verdict};
use plimsoll_core::decision::WaitClass;
use plimsoll_core::quota::Quota;
use smallvec::SmallVec;

use super::counters::{Counters, Overall};
use super::own_limits::{LimitId, OwnLimit, OwnLimits};
use crate::rules::{Ask, Found, RefusalForm, Rules};

/// The descriptors of a request that take no allocation; most have one or two.
pub(super) const FEW: usize = 4;

/// The decisions about all descriptors of a request, in their order.
pub(super) type Decisions<'a> = SmallVec<[Option<Decision<'a>>; FEW]>;

/// The decision about a descriptor that counts for a key.
#[derive(Clone, Debug)]
pub(super) struct Decision<'a> {
    pub(super) bucket: &'a str,
    pub(super) form: RefusalForm,
    tenant: Cow<'a, str>,
    /// The number of requests; 0 to check only.
    cost: u32,
    /// The limit that the descriptor brings along.
    own: Option<Own>,
    /// The hits, before the cost of the rule.
    hits: u64,
    /// The decision of the key alone.
    pub(super) decided: Decided,
    /// The limit of the bucket in requests/s.
    pub(super) limit: Option<f64>,
    pub(super) peek: Peek,
    /// The exact quota with the least left, if the key admits the request.
    pub(super) left: Option<QuotaLeft>,
}

#[derive(Clone, Copy, Debug)]
struct Own {
    id: LimitId,
    limit: OwnLimit,
    /// True if tokens were taken.
    has_taken: bool,
    is_exceeded: bool,
}

/// The limiter, the rules and the tables by which a request is decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deciders<'a> {
    pub(super) limiter: &'a Limiter,
    pub(super) rules: &'a Rules,
    pub(super) own_limits: &'a OwnLimits,
    pub(super) counters: &'a Counters,
}

impl<'a> Deciders<'a> {
    /// Decides about all descriptors of a request.
    pub(super) async fn decide(&self, request: &'a RateLimitRequest, now: Instant) -> Decisions<'a> {
        let descriptors = request.descriptors.iter();
        let mut decisions: Decisions<'_> =
            descriptors.map(|descriptor| self.compare(request, descriptor)).collect();
        if self.ask_own_limits(&mut decisions, now) || !self.ask_keys(&mut decisions).await {
            self.give_back(&decisions);
        }
        for decision in decisions.iter_mut().flatten().filter(|of| of.decided.verdict.is_admit()) {
            decision.left = self.limiter.quota_left(&decision.key());
        }
        self.counters.on_request(overall(&decisions));
        decisions
    }

    /// Compares a descriptor with the rules; `None` if it counts for no key.
    fn compare(
        &self,
        request: &'a RateLimitRequest,
        descriptor: &'a RateLimitDescriptor,
    ) -> Option<Decision<'a>> {
        let entries = descriptor.entries.iter().map(|entry| (entry.key.as_str(), entry.value.as_str()));
        let ask = match self.rules.descriptor(&request.domain, entries) {
            Found::Limited(ask) => ask,
            Found::Unlimited => {
                self.counters.on_unlimited();
                return None;
            }
            Found::NoRule => {
                self.counters.on_unmatched(&request.domain, descriptor);
                return None;
            }
        };
        let hits = hits(request, descriptor);
        let cost = u32::try_from(hits.saturating_mul(u64::from(ask.cost))).unwrap_or(u32::MAX);
        let Ask { bucket, tenant, takes_limit, refusal, .. } = ask;
        let limit = descriptor.limit.as_ref().filter(|_| takes_limit).and_then(OwnLimit::of);
        let own = limit.map(|limit| {
            let id = self.own_limits.id(&request.domain, descriptor, limit);
            Own { id, limit, has_taken: false, is_exceeded: false }
        });
        Some(Decision {
            bucket,
            form: refusal,
            cost,
            own,
            hits,
            decided: Decided::ADMITTED,
            limit: self.limiter.limit(bucket),
            peek: self.limiter.peek(&Request::new(bucket, &tenant)),
            tenant,
            left: None,
        })
    }

    /// Asks the limits that descriptors bring along. Returns true if one of them refuses the request, which then is not
    /// offered to any bucket.
    fn ask_own_limits(&self, decisions: &mut Decisions<'a>, now: Instant) -> bool {
        let mut is_refused = false;
        for decision in decisions.iter_mut().flatten() {
            let Some(own) = &mut decision.own else { continue };
            let Err(wait) = self.own_limits.take(own.id, own.limit, decision.hits, now) else {
                own.has_taken = true;
                continue;
            };
            own.is_exceeded = true;
            let is_enforced = decision.peek.enforced;
            self.counters.on_own_limit(is_enforced);
            if is_enforced {
                is_refused = true;
                let refusal = Refusal::new(Reason::TenantLimit, WaitClass::of(wait), fastrand::u32(..));
                decision.decided.verdict = Verdict::Refuse(refusal);
            } else {
                decision.decided.withheld = Some(Reason::TenantLimit);
            }
        }
        is_refused
    }

    /// Asks the keys of all descriptors together, and then their exact quotas. Returns true if all admit the request.
    async fn ask_keys(&self, decisions: &mut Decisions<'a>) -> bool {
        if let [Some(decision)] = decisions.as_mut_slice() {
            let decided = self.limiter.explain(&decision.key()).await;
            decision.set(decided);
            return decision.decided.verdict.is_admit();
        }
        let keys: SmallVec<[Request<'_>; FEW]> = decisions.iter().flatten().map(Decision::key).collect();
        if keys.is_empty() {
            return true;
        }
        let decided = self.limiter.explain_each(&Request::all(&keys)).await;
        drop(keys);
        let is_admitted = decided.iter().all(|decided| decided.verdict.is_admit());
        for (decision, decided) in decisions.iter_mut().flatten().zip(decided) {
            decision.set(decided);
        }
        is_admitted
    }

    /// Gives the tokens of a refused request back to the limits that descriptors brought along.
    fn give_back(&self, decisions: &Decisions<'a>) {
        for decision in decisions.iter().flatten() {
            if let Some(own) = decision.own.filter(|own| own.has_taken) {
                self.own_limits.give_back(own.id, own.limit, decision.hits);
            }
        }
    }
}

impl Decision<'_> {
    fn key(&self) -> Request<'_> {
        Request::new(self.bucket, &self.tenant).cost(self.cost)
    }

    /// Takes over the decision of the bucket. A refusal by the descriptor's own limit that was withheld stays known.
    fn set(&mut self, decided: Decided) {
        let withheld = self.decided.withheld.or(decided.withheld);
        self.decided = Decided { withheld, ..decided };
    }

    /// Returns the exact quota that is used up and refuses the request.
    pub(super) fn used_up(&self) -> Option<&Quota> {
        match self.decided.verdict {
            Verdict::Refuse(refusal) if refusal.reason() == Reason::TenantQuotaExceeded => self.quota(),
            _ => None,
        }
    }

    /// Returns the exact quota that has decided.
    pub(super) fn quota(&self) -> Option<&Quota> {
        self.decided.quota.as_deref()
    }

    /// Returns the limit that the descriptor brought along and exceeds.
    pub(super) fn exceeded_own(&self) -> Option<OwnLimit> {
        self.own.filter(|own| own.is_exceeded && !self.decided.verdict.is_admit()).map(|own| own.limit)
    }
}

/// Returns the result of a request.
pub(super) fn overall(decisions: &Decisions<'_>) -> Overall {
    let all = || decisions.iter().flatten().map(|decision| &decision.decided);
    if all().any(|decided| !decided.verdict.is_admit()) {
        Overall::OverLimit
    } else if all().any(|decided| decided.withheld.is_some()) {
        Overall::Withheld
    } else {
        Overall::Ok
    }
}

/// Returns the hits of a descriptor: its own, or else those of the request, of which 0 means 1. Own hits of 0 only check,
/// and so do negative ones: what was counted cannot be taken back.
fn hits(request: &RateLimitRequest, descriptor: &RateLimitDescriptor) -> u64 {
    match &descriptor.hits_addend {
        _ if descriptor.is_negative_hits => 0,
        Some(own) => own.value,
        None => u64::from(request.hits_addend.max(1)),
    }
}
