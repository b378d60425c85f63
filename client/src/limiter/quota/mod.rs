//! Exact quotas of a limiter: what is asked of the store behind the coin, and what is decided without it.

mod book;
mod calls;
mod config;
mod figures;
mod held;
mod store;
mod taking;
#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests;

pub use config::{QuotaStore, QuotaStoreError};
pub(crate) use figures::StoreCounters;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::decision::Reason;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::quota::Quota;
use smallvec::SmallVec;

use crate::limiter::layered::{self, Asked, Exact, QuotaLeft, Taking};
use calls::Shared;
use store::Store;
use taking::Need;

const QUOTAS_ON_STACK: usize = 8;

#[derive(Clone)]
pub(crate) struct Quotas {
    shared: Arc<Shared>,
}

impl Quotas {
    /// Makes the quotas that a store decides. Connects with the first call. Fails if a file of the
    /// configuration cannot be read.
    pub(crate) fn new(store: &QuotaStore) -> Result<Self, QuotaStoreError> {
        let seed = getrandom::u64().unwrap_or_default();
        let shared = Shared::new(
            Store::new(store, seed)?,
            store.to_string(),
            store.timeout,
            seed,
        );
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Takes what the lease of a key has, and begins a call ahead of need if one is due. Returns true if the lease
    /// covers the whole cost.
    #[inline]
    fn cover(&self, need: &mut Need<'_>, now: MonoTime) -> bool {
        let is_up = self.shared.is_up();
        let covered = self.shared.book.known(&need.id, |holding| {
            let tokens = holding.lease.cover(need.cost, now);
            let ahead = if is_up && tokens.count == need.cost {
                holding.ahead(need.id.quota, now)
            } else {
                None
            };
            (tokens, ahead)
        });
        let Some((tokens, ahead)) = covered else {
            return false;
        };
        need.covered = tokens;
        if let Some(demand) = ahead {
            self.shared.fly(need.id.key(), demand);
        }
        tokens.count == need.cost
    }
}

impl layered::Store for Quotas {
    /// Lets one request in 5 s pass, which asks again.
    fn remembered(&self, asked: &[Asked<'_>]) -> Option<Exact> {
        let now = self.shared.now();
        asked.iter().enumerate().find_map(|(at, asked)| {
            asked.quotas.iter().find_map(|quota| {
                let id = self.shared.book.id(quota, asked.tenant);
                let cost = u64::from(asked.cost.max(1));
                let wait = self
                    .shared
                    .book
                    .known(&id, |holding| holding.refuses(cost, now))??;
                Some(Exact::Refused {
                    at,
                    quota: Arc::clone(quota),
                    reason: Reason::TenantQuotaExceeded,
                    retry_after: (u64::from(asked.cost) <= quota.rate.max()).then_some(wait),
                })
            })
        })
    }

    /// A token bucket that several keys of a request name gives the largest of their costs, once.
    fn take(&self, asked: &[Asked<'_>], waits: bool) -> Taking {
        let now = self.shared.now();
        let mut needs: SmallVec<[Need<'_>; QUOTAS_ON_STACK]> = SmallVec::new();
        for (at, asked) in asked.iter().enumerate().filter(|(_, asked)| asked.cost > 0) {
            for quota in asked.quotas {
                let (id, cost) = (
                    self.shared.book.id(quota, asked.tenant),
                    u64::from(asked.cost),
                );
                match needs.iter_mut().find(|need| need.id.is_same(&id)) {
                    Some(same) => same.cost = same.cost.max(cost),
                    None => needs.push(Need::new(at, id, cost)),
                }
            }
        }
        let mut is_covered = true;
        for need in &mut needs {
            is_covered &= self.cover(need, now);
        }
        match is_covered {
            true => Taking::Ready(Exact::Granted),
            false => self.shared.ask(&needs, now, waits),
        }
    }

    fn left(&self, quota: &Arc<Quota>, tenant: &str) -> Option<QuotaLeft> {
        let now = self.shared.now();
        let id = self.shared.book.id(quota, tenant);
        let (remaining, reset) = self
            .shared
            .book
            .known(&id, |holding| holding.left(quota.rate, now))
            .flatten()?;
        Some(QuotaLeft {
            quota: Arc::clone(quota),
            remaining,
            reset,
        })
    }

    fn is_up(&self) -> bool {
        self.shared.is_answering()
    }

    fn warm(&self) {
        self.shared.warm();
    }

    fn close(&self, within: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.shared.close(within))
    }

    fn counters(&self) -> Option<StoreCounters> {
        Some(self.shared.counters())
    }
}
