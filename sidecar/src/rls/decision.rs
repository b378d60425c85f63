//! The decision about the descriptors of one request: all are compared with the rules, then the
//! limiter decides about their keys, and the request is admitted if none refuses.

use std::borrow::Cow;

use plimsoll_client::internals::{Decided, Wiring};
use plimsoll_client::{Limiter, Peek, QuotaLeft, Reason, Request, TenantLimit, Verdict};
use plimsoll_core::quota::Quota;
use plimsoll_tower::Head;
use smallvec::SmallVec;

use super::counters::{Counters, Overall};
use super::messages::{RateLimitDescriptor, RateLimitRequest};
use crate::rules::{Ask, Found, RefusalForm, Rules};

/// Key of an entry with the number of the attempt, from 1 on. It is not compared with rules.
const ATTEMPT: &str = "x-plimsoll-attempt";
/// Number of descriptors that need no allocation; most requests have one or two.
pub(super) const FEW: usize = 4;

/// In the order of the descriptors; `None` for a descriptor without a limit.
pub(super) type Decisions<'a> = SmallVec<[Option<Decision<'a>>; FEW]>;

#[derive(Clone, Debug)]
pub(super) struct Decision<'a> {
    pub(super) bucket: &'a str,
    pub(super) form: RefusalForm,
    tenant: Cow<'a, str>,
    /// Empty without one.
    plan: &'a str,
    /// Number of requests, of all hits; 0 to check only.
    cost: u32,
    /// Decision of this key only.
    pub(super) decided: Decided,
    /// Limit of the bucket in requests/s, if it is known.
    pub(super) limit: Option<f64>,
    /// Limit of the tenant, if it refused the request.
    pub(super) tenant_limit: Option<TenantLimit>,
    pub(super) peek: Peek,
    /// Exact quota with the fewest tokens left, if the key admits the request.
    pub(super) left: Option<QuotaLeft>,
    is_retried: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Deciders<'a> {
    pub(super) limiter: &'a Limiter,
    pub(super) rules: &'a Rules,
    pub(super) counters: &'a Counters,
    pub(super) wiring: &'a Wiring,
}

impl<'a> Deciders<'a> {
    pub(super) async fn decide(&self, request: &'a RateLimitRequest) -> Decisions<'a> {
        let descriptors = request.descriptors.iter();
        let mut decisions: Decisions<'_> = descriptors
            .map(|descriptor| self.compare(request, descriptor))
            .collect();
        self.ask_keys(&mut decisions).await;
        for decision in decisions.iter_mut().flatten() {
            let key = decision.key();
            if decision.is_retried && decision.decided.is_offered() {
                self.limiter.count_retried(&key);
            }
            match decision.decided.verdict {
                Verdict::Admit => decision.left = self.limiter.quota_left(&key),
                Verdict::Refuse(refusal) if refusal.reason() == Reason::TenantLimit => {
                    decision.tenant_limit = self.limiter.tenant_limit(&key);
                }
                Verdict::Refuse(_) => {}
            }
        }
        self.counters.on_request(overall(&decisions));
        decisions
    }

    fn compare(
        &self,
        request: &'a RateLimitRequest,
        descriptor: &'a RateLimitDescriptor,
    ) -> Option<Decision<'a>> {
        let all = descriptor.entries.iter();
        let all = all.map(|entry| (entry.key.as_str(), entry.value.as_str()));
        let mut attempts = all.clone().filter(|(key, _)| *key == ATTEMPT);
        let is_retried = attempts.any(|(key, value)| Head::marks_retry(key, || Some(value)));
        let entries = all.filter(|(key, _)| *key != ATTEMPT);
        let ask = match self.rules.descriptor(&request.domain, entries) {
            Found::Limited(ask) => ask,
            Found::Unlimited(rule) => {
                self.wiring.on_exempt(rule);
                self.counters.on_unlimited();
                return None;
            }
            Found::NoRule => {
                self.counters.on_unmatched(&request.domain, descriptor);
                return None;
            }
        };
        let Ask {
            bucket,
            tenant,
            cost,
            refusal,
            rule,
            tenant_found,
            plan,
        } = ask;
        if let Some(rule) = rule {
            self.wiring.on_match(rule);
        }
        if let Some(found) = tenant_found {
            self.wiring.on_tenant(found);
        }
        let plan = plan.unwrap_or_default();
        let cost = hits(request, descriptor).saturating_mul(u64::from(cost));
        Some(Decision {
            bucket,
            form: refusal,
            cost: u32::try_from(cost).unwrap_or(u32::MAX),
            decided: Decided::ADMITTED,
            limit: self.limiter.limit(bucket),
            tenant_limit: None,
            peek: self.limiter.peek(&Request::new(bucket, &tenant).plan(plan)),
            tenant,
            plan,
            left: None,
            is_retried: is_retried && cost > 0,
        })
    }

    /// Decides about the keys of all descriptors together, and then about their exact quotas.
    async fn ask_keys(&self, decisions: &mut Decisions<'a>) {
        if let [Some(decision)] = decisions.as_mut_slice() {
            decision.decided = self.limiter.explain(&decision.key()).await;
            return;
        }
        let keys: SmallVec<[Request<'_>; FEW]> =
            decisions.iter().flatten().map(Decision::key).collect();
        if keys.is_empty() {
            return;
        }
        let decided = self.limiter.explain_each(&Request::all(&keys)).await;
        drop(keys);
        for (decision, decided) in decisions.iter_mut().flatten().zip(decided) {
            decision.decided = decided;
        }
    }
}

impl Decision<'_> {
    fn key(&self) -> Request<'_> {
        let request = Request::new(self.bucket, &self.tenant);
        request.plan(self.plan).cost(self.cost)
    }

    /// Returns the exact quota that refused the request; `None` if another limit did, or none.
    pub(super) fn used_up(&self) -> Option<&Quota> {
        match self.decided.verdict {
            Verdict::Refuse(refusal) if refusal.reason() == Reason::TenantQuotaExceeded => {
                self.quota()
            }
            _ => None,
        }
    }

    pub(super) fn quota(&self) -> Option<&Quota> {
        self.decided.quota.as_deref()
    }
}

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

/// Returns the hits of a descriptor: its own, or else the hits of the request, where 0 means 1. Own
/// hits of 0 only check, and so do negative ones: counts cannot be taken back.
fn hits(request: &RateLimitRequest, descriptor: &RateLimitDescriptor) -> u64 {
    match &descriptor.hits_addend {
        _ if descriptor.is_negative_hits => 0,
        Some(own) => *own,
        None => u64::from(request.hits_addend.max(1)),
    }
}
