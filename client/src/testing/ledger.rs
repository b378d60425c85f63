//! The fake store of exact quotas: token buckets in memory under the virtual clock of a test.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_core::decision::Reason;
use plimsoll_core::names::Name;
use plimsoll_core::quota::{Balance, OnStoreError, Quota, QuotaKey, Refill};
use tokio::sync::watch;

use crate::hot::sync::lock;
use crate::limiter::layered::{Asked, Exact, QuotaLeft, Store, Taking};

#[derive(Clone, Debug, Default)]
pub(crate) struct QuotaLedger {
    inner: Arc<Mutex<Inner>>,
    is_held: Arc<watch::Sender<bool>>,
}

#[derive(Debug, Default)]
struct Inner {
    now: Duration,
    is_failing: bool,
    balances: BTreeMap<Id, Balance>,
    /// The cost of the last refusal, and its end in ms.
    remembered: BTreeMap<Id, (u64, u64)>,
    /// The requests admitted without an answer, and the end in ms of the interval that bounds them.
    allowances: BTreeMap<Id, (u64, u64)>,
    /// The questions that the store was asked, and those that a lease would have answered.
    asked: u64,
}

/// The name of a quota, and the tenant; `None` where all tenants share the quota.
type Id = (Name, Option<String>);

impl QuotaLedger {
    pub(super) fn advance(&self, span: Duration) {
        lock(&self.inner).now += span;
    }

    pub(super) fn fail(&self, is_failing: bool) {
        lock(&self.inner).is_failing = is_failing;
    }

    pub(super) fn hold(&self, is_held: bool) {
        self.is_held.send_replace(is_held);
    }

    pub(super) fn asked(&self) -> u64 {
        lock(&self.inner).asked
    }
}

impl Store for QuotaLedger {
    fn remembered(&self, asked: &[Asked<'_>]) -> Option<Exact> {
        let inner = lock(&self.inner);
        asked.iter().enumerate().find_map(|(at, of)| {
            of.quotas.iter().find_map(|quota| {
                let (cost, until_ms) = *inner.remembered.get(&id(quota, of.tenant))?;
                let left = until_ms
                    .checked_sub(inner.now_ms())
                    .filter(|left| *left > 0)?;
                (u64::from(of.cost) >= cost).then(|| refused(at, quota, left))
            })
        })
    }

    fn left(&self, quota: &Arc<Quota>, tenant: &str) -> Option<QuotaLeft> {
        let inner = lock(&self.inner);
        let (rate, now_ms) = (quota.rate, inner.now_ms());
        let balance = inner
            .balances
            .get(&id(quota, tenant))?
            .refilled(rate, now_ms);
        let reset = Duration::from_millis(balance.next_refill_ms(rate).saturating_sub(now_ms));
        Some(QuotaLeft {
            quota: Arc::clone(quota),
            remaining: balance.tokens,
            reset,
        })
    }

    /// Answers immediately for quotas with leases, as if one were held. A request that does not
    /// wait follows the policies of other quotas.
    fn take(&self, asked: &[Asked<'_>], waits: bool) -> Taking {
        let has_leases = asked
            .iter()
            .all(|of| of.quotas.iter().all(|quota| quota.lease() > 1));
        let exact = lock(&self.inner).take(asked, waits || has_leases);
        if has_leases || !waits {
            return Taking::Ready(exact);
        }
        let mut is_held = self.is_held.subscribe();
        Taking::Asking(Box::pin(async move {
            // The sender lives as long as the limiter does.
            let _ = is_held.wait_for(|is_held| !is_held).await;
            exact
        }))
    }

    fn is_up(&self) -> bool {
        !lock(&self.inner).is_failing
    }
}

impl Inner {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.now.as_millis()).unwrap_or(u64::MAX)
    }

    fn take(&mut self, asked: &[Asked<'_>], is_asked: bool) -> Exact {
        self.asked += u64::from(is_asked);
        let now = self.now_ms();
        let mut all = asked.iter().enumerate().flat_map(|(at, of)| {
            let quotas = of.quotas.iter();
            quotas.map(move |quota| (at, quota, of.tenant, u64::from(of.cost)))
        });
        if self.is_failing || !is_asked {
            let degraded =
                all.find(|(_, quota, tenant, cost)| !self.allow(now, quota, tenant, *cost));
            return degraded.map_or(Exact::Granted, |(at, quota, ..)| Exact::Refused {
                at,
                quota: Arc::clone(quota),
                reason: Reason::QuotaDegraded,
                retry_after: None,
            });
        }
        let mut after = self.balances.clone();
        for (at, quota, tenant, cost) in all {
            let id = id(quota, tenant);
            let balance = after
                .entry(id.clone())
                .or_insert_with(|| Balance::full(quota.rate, now));
            let held = balance.refilled(quota.rate, now);
            if held.tokens < cost {
                let at_ms = held
                    .holds_at_ms(quota.rate, cost)
                    .unwrap_or_else(|| held.next_refill_ms(quota.rate));
                self.remembered.insert(id, (cost, at_ms));
                return refused(at, quota, at_ms.saturating_sub(now));
            }
            balance.reduce(quota.rate, now, cost, Refill::OnPhase);
        }
        self.balances = after;
        Exact::Granted
    }

    fn allow(&mut self, now: u64, quota: &Quota, tenant: &str, cost: u64) -> bool {
        match quota.on_store_error {
            OnStoreError::Allow => true,
            OnStoreError::Deny => false,
            OnStoreError::AllowBounded => {
                let (used, until_ms) = self.allowances.entry(id(quota, tenant)).or_default();
                if *until_ms <= now {
                    (*used, *until_ms) = (0, now.saturating_add(quota.rate.every_ms().max(1_000)));
                }
                *used += cost;
                *used <= quota.bounded()
            }
        }
    }
}

fn id(quota: &Quota, tenant: &str) -> Id {
    (
        quota.name.clone(),
        (quota.key == QuotaKey::Tenant).then(|| tenant.to_owned()),
    )
}

fn refused(at: usize, quota: &Arc<Quota>, left_ms: u64) -> Exact {
    Exact::Refused {
        at,
        quota: Arc::clone(quota),
        reason: Reason::TenantQuotaExceeded,
        retry_after: Some(Duration::from_millis(left_ms)),
    }
}
