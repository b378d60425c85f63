//! Entry points for the tower layer, the simulator, the sidecar, the measurements and the fuzzer,
//! which services do not need. They may change with any version.

use std::sync::Arc;

use plimsoll_core::decision::Verdict;
use plimsoll_core::report::{Counts, Identity};

use crate::feed::cache::{self, Owner};
pub use crate::hot::decision::Decided;
use crate::hot::decision::{COST_MAX, DecideCtx};
use crate::hot::rng::SeededDraws;
use crate::hot::table::Table;
use crate::hot::thread_counters::Counters;
pub use crate::hot::thread_counters::{Pass, TenantFound};
pub use crate::limiter::KeyHandle;
use crate::limiter::layered::Each;
pub use crate::limiter::layered::together::{DecidedTogether, DecidingTogether};
use crate::limiter::thread_ctx;
pub use crate::responses::recorded::{AskingFor, Decision, Recorders, RefusedBy};
pub use crate::responses::{Ending, GRPC_UNKNOWN, Recorder};
pub use crate::setup::{TenantSource, Wiring, write_readable};
pub use crate::subscription::Subscription;
use crate::{BucketHandle, Limiter, Peek, Request};

#[doc(hidden)]
impl Limiter {
    /// Makes a limiter without a transport: the caller carries reports and directives between the
    /// [`Subscription`] and a parent, and passes the time. No clock, socket or entropy is used;
    /// `seed` is for the hashes of names. `threads` threads at a time have their own counters; 0 is
    /// enough where only [shards](Shard) decide.
    #[must_use]
    pub fn without_transport(
        identity: Identity,
        keys_max: usize,
        threads: usize,
        seed: u64,
    ) -> (Self, Subscription) {
        let table = Arc::new(Table::new(keys_max, threads, seed));
        let subscription = Subscription::new(identity, Arc::clone(&table));
        (
            Self {
                table,
                control: None,
            },
            subscription,
        )
    }

    /// Decides like [`check_async`](Self::check_async) about a request of one key, and returns the
    /// withheld refusal and the quota that refused. Coin and guard decide in the call.
    pub fn explain(&self, request: &Request<'_>) -> impl Future<Output = Decided> + Send + use<> {
        self.begin(request, true).ended()
    }

    /// Decides like [`check_async`](Self::check_async), and returns the result of each key
    /// separately.
    pub async fn explain_each(&self, request: &Request<'_>) -> Each<Decided> {
        self.each(request, true).await
    }

    /// Counts a request that its caller sent again, after its decision, which does not depend on it. A request that was
    /// refused from the memory of a used-up quota is no part of the offered load, and must not be counted.
    pub fn count_retried(&self, request: &Request<'_>) {
        for request in request.keys() {
            if let Some(target) = self.target(request) {
                let cost = request.cost.clamp(1, COST_MAX);
                self.table.counters.quotas.add_retried(target.key, cost);
            }
        }
    }

    /// Watches a list of rules, each by its text.
    pub fn watch_wiring(
        &self,
        rules: impl IntoIterator<Item = String>,
        source: Option<TenantSource>,
    ) -> Arc<Wiring> {
        Wiring::watch(&self.table, rules, source)
    }

    /// Makes a shard of this limiter. Its decisions depend only on `seed`.
    #[must_use]
    pub fn shard(&self, seed: u64) -> Shard {
        let counters = self.table.counters.add_shard();
        Shard {
            limiter: self.clone(),
            draws: SeededDraws::new(seed),
            counters,
        }
    }
}

#[doc(hidden)]
impl BucketHandle {
    /// Resolves a tenant's key once; the key is not evicted while the handle lives.
    #[must_use]
    pub fn key(&self, tenant: &str) -> KeyHandle {
        self.resolve(tenant, "")
    }
}

#[doc(hidden)]
impl KeyHandle {
    #[inline]
    pub fn request(&self) -> Request<'_> {
        Request::of_key(self)
    }

    #[inline]
    pub fn check(&self) -> Verdict {
        self.table.decide(self.target(), thread_ctx(&self.table))
    }

    pub fn peek(&self) -> Peek {
        self.table.peek(self.target())
    }

    pub fn counts(&self) -> Counts {
        self.table.counters.counts(self.place.key)
    }
}

/// Decides like its [`Limiter`], but without quotas, and with its own coin states and random generator, so that runs
/// are reproducible.
#[derive(Debug)]
pub struct Shard {
    limiter: Limiter,
    draws: SeededDraws,
    counters: Arc<Counters>,
}

impl Shard {
    /// Decides about a request of one key without its quotas, and names the refusal that was not
    /// carried out.
    #[inline]
    pub fn check(&mut self, request: &Request<'_>) -> Decided {
        let Some(target) = self.limiter.target(request) else {
            return Decided::ADMITTED;
        };
        let ctx = DecideCtx {
            counters: self.counters.block(0),
            draws: &mut self.draws,
        };
        self.limiter
            .table
            .decide_in_full(target, request.cost, request.trace, ctx)
    }
}

/// Restores the directives of a cache file with these bytes, unless they are invalid.
pub fn restore(subscription: &mut Subscription, identity: Identity, bytes: &[u8]) {
    let owner = Owner {
        service: identity.service,
        zone: identity.zone,
    };
    if let Ok((directives, _)) = cache::read(bytes, &owner) {
        subscription.restore(directives);
    }
}

#[must_use]
pub fn with_checksum(body: &[u8]) -> Vec<u8> {
    cache::with_checksum(body)
}
