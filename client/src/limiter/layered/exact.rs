//! The question to the exact layer, and its answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::decision::Reason;
use plimsoll_core::quota::Quota;

/// The quotas of one key of a request.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) quotas: &'a [Arc<Quota>],
    pub(crate) tenant: &'a str,
    pub(crate) cost: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Exact {
    /// All quotas had the tokens, and they are taken; or the policy of a quota admits without its store.
    Granted,
    /// A quota is used up or cannot be checked. No token is taken.
    Refused {
        /// The index of the key in what was asked.
        at: usize,
        quota: Arc<Quota>,
        /// The reason: `TenantQuotaExceeded` or `QuotaDegraded`.
        reason: Reason,
        /// The time until the quota has the tokens; `None` if it never has, or if that is unknown.
        retry_after: Option<Duration>,
    },
}

/// The rest of an exact quota, by the last answer of its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaLeft {
    /// The quota.
    pub quota: Arc<Quota>,
    /// The requests left, including requests that this instance has leased.
    pub remaining: u64,
    /// The time until the next refill.
    pub reset: Duration,
}

pub(crate) enum Taking {
    /// The answer, by leases, by a policy or from memory.
    Ready(Exact),
    /// The answer of the store. Dropped before its end, it gives back what it has and what the store still debits.
    Asking(Answer),
}

pub(crate) type Answer = Pin<Box<dyn Future<Output = Exact> + Send>>;
