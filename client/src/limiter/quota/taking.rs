//! The requests that leases do not cover: they ask the store, or follow the policies of their quotas.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::decision::Reason;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::quota::OnStoreError;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::timeout;

use super::book::holding::Holding;
use super::book::{BucketId, Joined, Key, LeasedTokens, Outcome, Reply, lease_ends};
use super::calls::Shared;
use super::held::{Held, Waits};
use super::store::{Ask, Failure};
use crate::limiter::layered::{Exact, Taking};

#[derive(Clone, Copy)]
pub(super) struct Need<'a> {
    at: usize,
    pub(super) id: BucketId<'a>,
    pub(super) cost: u64,
    /// The tokens that the lease has given.
    pub(super) covered: LeasedTokens,
}

impl<'a> Need<'a> {
    pub(super) const fn new(at: usize, id: BucketId<'a>, cost: u64) -> Self {
        Self {
            at,
            id,
            cost,
            covered: LeasedTokens {
                count: 0,
                ends: MonoTime::ZERO,
            },
        }
    }
}

struct Open {
    at: usize,
    cost: u64,
    /// The tokens that the lease did not cover, as a demand.
    ask: Ask,
}

/// A request that leases do not cover, until all its keys are decided.
struct Request {
    shared: Arc<Shared>,
    /// The tokens taken so far.
    has: Vec<Held>,
    open: Vec<Open>,
    /// The admissions by policies, which a later refusal takes back.
    allowed: Vec<Allowed>,
}

/// Tokens of an allowance, which ends at `ends`.
struct Allowed {
    key: Key,
    need: u64,
    ends: MonoTime,
}

impl Shared {
    pub(super) fn ask(self: &Arc<Self>, needs: &[Need<'_>], now: MonoTime, waits: bool) -> Taking {
        let mut request = Request {
            shared: Arc::clone(self),
            has: Vec::new(),
            open: Vec::new(),
            allowed: Vec::new(),
        };
        for need in needs {
            let key = need.id.key();
            if need.covered.count > 0 {
                request
                    .has
                    .push(Held::new(Arc::clone(self), key.clone(), need.covered));
            }
            let least = need.cost - need.covered.count;
            if least > 0 {
                request.open.push(Open {
                    at: need.at,
                    cost: need.cost,
                    ask: Ask::all(key, least),
                });
            }
        }
        let is_possible = waits && !self.is_closed() && Handle::try_current().is_ok();
        let counted = if is_possible {
            Arc::clone(&self.waiting).try_acquire_owned().ok()
        } else {
            None
        };
        // Without a wait, or behind an open breaker, the policies decide immediately.
        let without = |_: &mut Open| counted.is_none() || !self.passes();
        for open in request.open.extract_if(.., without).collect::<Vec<_>>() {
            self.figures.failed(if is_possible && counted.is_none() {
                Failure::Overflow
            } else {
                Failure::Open
            });
            let is_allowed = request.is_allowed(&open, now);
            if !waits {
                self.lead(&open.ask.key, now);
            }
            if !is_allowed {
                return Taking::Ready(request.refused(&open, Reason::QuotaDegraded, None));
            }
        }
        let Some(counted) = counted else {
            return Taking::Ready(request.granted());
        };
        if request.open.is_empty() {
            return Taking::Ready(request.granted());
        }
        let one = if request.open.len() == 1 {
            request.open.pop()
        } else {
            None
        };
        let Some(open) = one else {
            return Taking::Asking(Box::pin(request.ask_together(counted)));
        };
        let (sender, settled) = oneshot::channel();
        let (key, need) = (&open.ask.key, (open.ask.demand.least, open.cost));
        match self.with(key, now, |holding| {
            holding.join(&key.quota, need, Waits(sender), now)
        }) {
            // The book has no room for the key.
            None => {
                request.open.push(open);
                return Taking::Asking(Box::pin(request.ask_together(counted)));
            }
            Some(Joined::Full) => {
                self.figures.failed(Failure::Overflow);
                return Taking::Ready(request.by_policy(&open, now));
            }
            Some(Joined::Call(demand)) => self.fly(key.clone(), demand),
            Some(Joined::Waits) => {}
        }
        Taking::Asking(Box::pin(request.wait(open, settled, counted)))
    }

    /// Begins a call for the requests of a key that do not wait, so that later ones find a lease or a refusal.
    fn lead(self: &Arc<Self>, key: &Key, now: MonoTime) {
        if let Some(demand) = self
            .with(key, now, |holding| holding.lead(&key.quota, now))
            .flatten()
        {
            self.fly(key.clone(), demand);
        }
    }
}

impl Request {
    async fn wait(
        mut self,
        open: Open,
        settled: oneshot::Receiver<Outcome<Held>>,
        _counted: OwnedSemaphorePermit,
    ) -> Exact {
        match timeout(self.shared.timeout, settled).await {
            Ok(Ok(Ok(held))) => {
                self.has.push(held);
                self.granted()
            }
            Ok(Ok(Err(wait))) => self.refused(&open, Reason::TenantQuotaExceeded, wait),
            // The call has failed, or takes too long.
            Ok(Err(_)) | Err(_) => {
                let now = self.shared.now();
                self.by_policy(&open, now)
            }
        }
    }

    fn by_policy(mut self, open: &Open, now: MonoTime) -> Exact {
        match self.is_allowed(open, now) {
            true => self.granted(),
            false => self.refused(open, Reason::QuotaDegraded, None),
        }
    }

    /// Asks for several keys: together where the store can, otherwise in sequence until one
    /// refuses.
    async fn ask_together(mut self, _counted: OwnedSemaphorePermit) -> Exact {
        let open = std::mem::take(&mut self.open);
        let mut asks = Vec::with_capacity(open.len());
        for open in &open {
            let (Ask { key, demand }, now) = (open.ask.clone(), self.shared.now());
            let with_lease = self.shared.with(&key, now, |holding| {
                holding.demand(&key.quota, demand.least, now)
            });
            asks.push(Ask {
                demand: with_lease.unwrap_or(demand),
                key,
            });
        }
        let started = self.shared.now();
        for group in self.shared.store.groups(&asks) {
            let pick = |at: &usize| asks.get(*at).cloned();
            let members: Arc<[Ask]> = group.iter().filter_map(pick).collect();
            let sent = self.shared.now();
            let left = self.shared.timeout.saturating_sub(sent.since(started));
            let shared = Arc::clone(&self.shared);
            // A task, because the tokens of an answer must not be lost with the request that asked.
            let asked = Arc::clone(&members);
            let answer = tokio::spawn(async move {
                shared
                    .call(Arc::clone(&asked))
                    .await
                    .map(|(replies, _place)| {
                        let replies = replies.into_iter().zip(&*asked);
                        replies
                            .map(|(reply, ask)| (reply, shared.hold(ask, reply, sent)))
                            .collect::<Vec<_>>()
                    })
            });
            let Ok(Ok(Ok(replies))) = timeout(left, answer).await else {
                let now = self.shared.now();
                for open in group.iter().filter_map(|at| open.get(*at)) {
                    if !self.is_allowed(open, now) {
                        return self.refused(open, Reason::QuotaDegraded, None);
                    }
                }
                continue;
            };
            if let Some((open, wait)) = self.take_replies(&open, &group, replies) {
                return self.refused(open, Reason::TenantQuotaExceeded, wait);
            }
        }
        self.granted()
    }

    /// Takes the tokens of one answer, or returns the key that refuses and its wait.
    fn take_replies<'a>(
        &mut self,
        open: &'a [Open],
        group: &[usize],
        replies: Vec<(Reply, Held)>,
    ) -> Option<(&'a Open, Option<Duration>)> {
        let now = self.shared.now();
        let (mut refusal, mut is_short) = (None, None);
        for (open, (reply, held)) in group.iter().filter_map(|at| open.get(*at)).zip(replies) {
            let (key, need) = (&open.ask.key, open.ask.demand.least);
            if reply.granted < need && reply.remaining < need {
                let refused = |holding: &mut Holding<Waits>| {
                    holding.refused(&key.quota, (need, open.cost), reply, now)
                };
                let wait = self.shared.with(key, now, refused);
                refusal.get_or_insert((open, wait.unwrap_or(Some(reply.refill_in))));
                continue;
            }
            self.shared
                .known(key, |holding| holding.heard(&key.quota, reply, now));
            if reply.granted >= need {
                self.has.push(held.split(need));
            } else {
                is_short.get_or_insert((open, Some(Duration::ZERO)));
            }
        }
        // A store that takes from none although each has enough gives no tokens to use.
        refusal.or(is_short)
    }

    /// Returns true if the policy of a quota admits without the store.
    fn is_allowed(&mut self, open: &Open, now: MonoTime) -> bool {
        let (key, need) = (&open.ask.key, open.ask.demand.least);
        let is_allowed = match key.quota.on_store_error {
            OnStoreError::Allow => true,
            OnStoreError::Deny => false,
            OnStoreError::AllowBounded => {
                let allowed = self.shared.with(key, now, |holding| {
                    holding.allowance.take(&key.quota, need, now)
                });
                let ends = allowed.and_then(Result::ok);
                self.allowed.extend(ends.map(|ends| Allowed {
                    key: key.clone(),
                    need,
                    ends,
                }));
                ends.is_some()
            }
        };
        self.shared.known(key, Holding::forget);
        self.shared.figures.degraded(key.quota.on_store_error);
        is_allowed
    }

    fn granted(mut self) -> Exact {
        self.has.drain(..).for_each(Held::spend);
        Exact::Granted
    }

    /// Refuses, and takes nothing.
    fn refused(self, open: &Open, reason: Reason, retry_after: Option<Duration>) -> Exact {
        for Allowed { key, need, ends } in &self.allowed {
            self.shared
                .known(key, |holding| holding.allowance.take_back(*need, *ends));
        }
        Exact::Refused {
            at: open.at,
            quota: Arc::clone(&open.ask.key.quota),
            reason,
            retry_after,
        }
    }
}

impl Shared {
    fn hold(self: &Arc<Self>, ask: &Ask, reply: Reply, sent: MonoTime) -> Held {
        let tokens = LeasedTokens {
            count: reply.granted,
            ends: lease_ends(&ask.key.quota, reply.refill_in, sent),
        };
        Held::new(Arc::clone(self), ask.key.clone(), tokens)
    }
}
