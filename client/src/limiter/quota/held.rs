//! Tokens on their way to a request, which return if the request ends before it has used them.

use std::sync::Arc;

use super::book::{Key, LeasedTokens, Outcome, Waiter};
use super::calls::Shared;

/// Maximum number of requests that wait for the store. Further ones follow the policies of their quotas.
pub(crate) const WAITING_MAX: usize = 10_000;

/// Tokens that a request has taken and not used yet. Dropped, they return to the lease or the store.
pub(super) struct Held {
    shared: Arc<Shared>,
    key: Key,
    tokens: LeasedTokens,
}

impl Held {
    pub(super) const fn new(shared: Arc<Shared>, key: Key, tokens: LeasedTokens) -> Self {
        Self {
            shared,
            key,
            tokens,
        }
    }

    /// Keeps `count` tokens, and returns the others.
    pub(super) fn split(mut self, count: u64) -> Self {
        let others = LeasedTokens {
            count: self.tokens.count.saturating_sub(count),
            ..self.tokens
        };
        self.tokens.count -= others.count;
        self.shared.put_back(&self.key, others);
        self
    }

    pub(super) fn spend(mut self) {
        self.tokens.count = 0;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.put_back(&self.key, self.tokens);
    }
}

/// A request that waits for the store. Dropped, it follows the policies of its quotas.
pub(super) struct Waits(pub(super) tokio::sync::oneshot::Sender<Outcome<Held>>);

impl Waiter for Waits {
    fn is_gone(&self) -> bool {
        self.0.is_closed()
    }
}
