//! Tests of the exact layer on buckets in memory with their own clock.

mod failures;
mod hot;
mod keys;
mod leases;
pub(super) mod memory;
mod property;
mod real;
mod script;
mod servers;
mod stalls;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::decision::Reason;
use plimsoll_core::quota::{OnStoreError, Quota, QuotaKey, QuotaRate};

use super::calls::Shared;
use super::config::TIMEOUT_DEFAULT;
use super::store::Store;
use super::{Quotas, StoreCounters};
use crate::limiter::layered::{Asked, Exact, Store as _, Taking};
use memory::Memory;

impl Quotas {
    fn on_memory(memory: &Memory, timeout: Duration) -> Self {
        let (store, name) = (Store::Memory(memory.clone()), "memory".to_owned());
        Self {
            shared: Arc::new(Shared::new(store, name, timeout, 1)),
        }
    }

    fn counters(&self) -> StoreCounters {
        self.shared.counters()
    }
}

fn hourly(name: &str, max: u64, lease: u64) -> Arc<Quota> {
    hourly_or(name, max, lease, OnStoreError::AllowBounded)
}

fn hourly_or(name: &str, max: u64, lease: u64, policy: OnStoreError) -> Arc<Quota> {
    quota(name, (max, max, 3_600_000), lease, policy)
}

fn asked<'a>(quotas: &'a [Arc<Quota>], tenant: &'a str, cost: u32) -> Asked<'a> {
    Asked {
        quotas,
        tenant,
        cost,
    }
}

fn quota(
    name: &str,
    (max, refill, every_ms): (u64, u64, u64),
    lease: u64,
    policy: OnStoreError,
) -> Arc<Quota> {
    let rate = QuotaRate::new(max, refill, every_ms).unwrap();
    Arc::new(Quota::new(name.parse().unwrap(), rate, QuotaKey::Tenant, policy, lease).unwrap())
}

fn on(memory: &Memory) -> Quotas {
    Quotas::on_memory(memory, TIMEOUT_DEFAULT)
}

async fn settled(taking: Taking) -> Exact {
    match taking {
        Taking::Ready(exact) => exact,
        Taking::Asking(answer) => answer.await,
    }
}

async fn take(quotas: &Quotas, of: &[Arc<Quota>], tenant: &str, cost: u32) -> Exact {
    settled(quotas.take(&[asked(of, tenant, cost)], true)).await
}

fn remembered(quotas: &Quotas, of: &[Arc<Quota>], tenant: &str, cost: u32) -> Option<Exact> {
    quotas.remembered(&[asked(of, tenant, cost)])
}

fn refusal(exact: Exact) -> Option<(String, Reason, Option<u64>)> {
    match exact {
        Exact::Granted => None,
        Exact::Refused {
            quota,
            reason,
            retry_after,
            ..
        } => Some((
            quota.name.to_string(),
            reason,
            retry_after.map(|wait| wait.as_secs()),
        )),
    }
}

async fn turn() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
