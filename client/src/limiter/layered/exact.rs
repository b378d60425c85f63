//! The question to the exact layer, and its answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::decision::Reason;
use plimsoll_core::quota::Quota;

/// The quotas of one key of a request, and the tokens that the request costs.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// The quotas of the bucket.
    pub(crate) quotas: &'a [Arc<Quota>],
    /// The tenant, a valid name.
    pub(crate) tenant: &'a str,
    /// The tokens of each quota.
    pub(crate) cost: u32,
}

/// The decision of the exact layer about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Exact {
    /// All quotas had the tokens, and they are taken; or the policy of a quota admits without its store.
    Granted,
    /// A quota is used up or cannot be checked. No token is taken.
    Refused {
        /// The index of the key in what was asked.
        at: usize,
        /// The quota.
        quota: Arc<Quota>,
        /// The reason: `TenantQuotaExceeded` or `QuotaDegraded`.
        reason: Reason,
        /// The time until the quota has the tokens; `None` if it never has, or if that is unknown.
        retry_after: Option<Duration>,
    },
}

/// What is left of an exact quota, by the last answer of its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaLeft {
    /// The quota.
    pub quota: Arc<Quota>,
    /// The requests left, with those that this instance has leased.
    pub remaining: u64,
    /// The time until the next refill.
    pub reset: Duration,
}

/// A decision, or the question to the store on its way.
pub(crate) enum Taking {
    /// The decision, by leases or by a policy alone.
    Ready(Exact),
    /// The decision of the store. Dropped before its end, it gives back what it has; a debit on its way is spent.
    Asking(Answer),
}

/// The answer of a store that was asked.
pub(crate) type Answer = Pin<Box<dyn Future<Output = Exact> + Send>>;
