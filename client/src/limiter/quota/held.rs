//! Tokens on their way to a request, which return if the request ends before it has used them.

use std::sync::Arc;

use plimsoll_core::quota::Quota;

use super::book::{Tokens, Waiter};
use super::calls::Shared;

/// Tokens that a request has taken and not used yet. Dropped, they return to the lease or the store.
#[derive(Debug)]
pub(super) struct Held {
    shared: Arc<Shared>,
    quota: Arc<Quota>,
    tenant: Arc<str>,
    tokens: Tokens,
}

impl Held {
    pub(super) const fn new(
        shared: Arc<Shared>,
        quota: Arc<Quota>,
        tenant: Arc<str>,
        tokens: Tokens,
    ) -> Self {
        Self { shared, quota, tenant, tokens }
    }

    /// Keeps this many, and returns the others.
    pub(super) fn split(mut self, count: u64) -> Self {
        let others = Tokens { count: self.tokens.count.saturating_sub(count), ..self.tokens };
        self.tokens.count -= others.count;
        if others.count > 0 {
            self.shared.put_back(&self.quota, &self.tenant, others);
        }
        self
    }

    /// Uses the tokens.
    pub(super) fn spend(mut self) {
        self.tokens.count = 0;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.tokens.count > 0 {
            self.shared.put_back(&self.quota, &self.tenant, self.tokens);
        }
    }
}

/// The outcome of a call for one request.
#[derive(Debug)]
pub(super) enum Settled {
    /// The tokens.
    Took(Held),
    /// The store has fewer, and how long until it has enough, if ever.
    Refused(Option<std::time::Duration>),
    /// The store does not answer.
    Failed,
}

/// A request that waits for the outcome.
#[derive(Debug)]
pub(super) struct Waits(pub(super) tokio::sync::oneshot::Sender<Settled>);

impl Waiter for Waits {
    fn is_gone(&self) -> bool {
        self.0.is_closed()
    }
}
