//! The handles that resolve names beforehand: a bucket's and a key's.

use std::fmt;
use std::sync::Arc;

use plimsoll_core::decision::Verdict;
use plimsoll_core::decision::trace::TraceId;
use plimsoll_core::quantity::DropRatio;
use plimsoll_core::report::Counts;

use crate::hot::decision::DecideCtx;
#[cfg(not(feature = "testing"))]
use crate::hot::rng::ThreadRng;
use crate::hot::table::{BucketPlace, KeyPlace, Table, Target};
use crate::interner::pin::Pin;
use crate::limiter::layered::name_of;
use crate::responses::Recorder;

/// A bucket, resolved once: the fastest way to decide by a tenant's name.
#[derive(Clone)]
pub struct BucketHandle {
    pub(crate) table: Arc<Table>,
    pub(crate) place: BucketPlace,
}

/// A key, resolved once: the fastest way to decide.
#[derive(Clone, Debug)]
pub struct KeyHandle {
    pub(crate) table: Arc<Table>,
    pub(crate) place: KeyPlace,
    bucket: u32,
    /// The name by which exact quotas are kept, also for a tenant that shares the default class.
    tenant: Arc<str>,
    /// Protects the key from eviction while the handle lives. `None` for the default class, which is never
    /// evicted.
    _pin: Option<Pin>,
}

/// A preview of the decision about a request: to peek counts nothing and takes no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peek {
    /// The probability that the draw refuses a request. For a request of a trace, a coherent coin's decision
    /// is already determined, and only an `admit_traced` call returns it.
    pub ratio: DropRatio,
    /// True if refusals are enforced here: not in shadow mode, while killed, or outside the canary cohort.
    pub enforced: bool,
    /// True if a guard is set and has no token left until its next refill.
    pub exhausted: bool,
}

impl fmt::Debug for BucketHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketHandle").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl BucketHandle {
    /// Returns the name of the bucket.
    #[must_use]
    pub fn name(&self) -> &str {
        self.table.responses.name(self.place.bucket).unwrap_or_default()
    }

    /// Returns the limit of the bucket in requests/s; `None` while it is unknown, and where there is none.
    #[cfg(feature = "middleware")]
    pub(crate) fn limit(&self) -> Option<f64> {
        Some(self.table.limits.get(self.place.bucket).per_second()?.per_second())
    }

    /// Decides for a tenant by name; see [`Limiter::admit`](crate::Limiter::admit).
    #[inline]
    pub fn admit(&self, tenant: &str) -> Verdict {
        decide(&self.table, self.table.target(self.place, tenant))
    }

    /// Decides for a request that counts as `cost` requests; see [`KeyHandle::admit_n`].
    #[inline]
    pub fn admit_n(&self, tenant: &str, cost: u32) -> Verdict {
        decide_n(&self.table, self.table.target(self.place, tenant), cost)
    }

    /// Decides by the caller's own draw; see [`KeyHandle::admit_with`].
    #[inline]
    pub fn admit_with(&self, tenant: &str, draw: u32) -> Verdict {
        decide_with(&self.table, self.table.target(self.place, tenant), draw)
    }

    /// Decides for a request that may belong to a trace; see [`KeyHandle::admit_traced`].
    #[inline]
    pub fn admit_traced(&self, tenant: &str, trace: Option<TraceId>) -> Verdict {
        self.admit_by_trace(tenant, || trace)
    }

    /// Decides like `admit_traced`, and evaluates `trace` only where a coherent coin needs it.
    #[inline]
    pub(crate) fn admit_by_trace(&self, tenant: &str, trace: impl FnOnce() -> Option<TraceId>) -> Verdict {
        decide_traced(&self.table, self.table.target(self.place, tenant), trace)
    }

    /// Decides like `admit_by_trace` for a request that counts as `cost` requests.
    #[cfg(feature = "middleware")]
    pub(crate) fn admit_cost_by_trace(
        &self,
        tenant: &str,
        cost: u32,
        trace: impl FnOnce() -> Option<TraceId>,
    ) -> Verdict {
        decide_cost_traced(&self.table, self.table.target(self.place, tenant), cost, trace)
    }

    /// Returns the recorder of a response to a request of a tenant.
    #[inline]
    pub(crate) fn recorder_of(&self, tenant: &str) -> Recorder {
        recorder_of(&self.table, self.place, tenant)
    }

    /// Returns the recorder of a refusal of this bucket.
    pub(crate) fn recorder(&self) -> Recorder {
        self.table.responses.recorder(self.place.bucket)
    }

    /// Previews the decision about a tenant's request; see [`KeyHandle::peek`]. A new name takes no room.
    #[must_use]
    pub fn peek(&self, tenant: &str) -> Peek {
        self.table.peek(self.table.known_target(self.place, tenant))
    }

    /// Resolves a tenant's key once; the key is not evicted while the handle lives. An empty tenant, or one without room
    /// in the table, shares the default class.
    #[must_use]
    pub fn key(&self, tenant: &str) -> KeyHandle {
        let name = name_of(tenant);
        let pin = Pin::new(&self.table, self.place.bucket, &name);
        let key = pin.as_ref().map_or(self.place.default_key, Pin::key);
        let place = self.table.place_of(key, self.place.default_key);
        let (table, bucket) = (Arc::clone(&self.table), self.place.bucket);
        KeyHandle { table, place, bucket, tenant: Arc::from(&*name), _pin: pin }
    }
}

impl KeyHandle {
    /// Decides for this key.
    #[inline]
    pub fn admit(&self) -> Verdict {
        decide(&self.table, self.target())
    }

    /// Decides for a request that counts as `cost` requests: by one independent draw, admitted or refused as
    /// a whole, and taking `cost` tokens of a guard. A cost above the guard's depth passes when the guard is
    /// full, and leaves a debt; more than 10,000 count as so many. A cost of 0 is admitted and not counted.
    #[inline]
    pub fn admit_n(&self, cost: u32) -> Verdict {
        decide_n(&self.table, self.target(), cost)
    }

    /// Decides by the caller's own draw, uniform over all of `u32`. A draw is refused by every ratio above a
    /// threshold, so limiters that are passed one draw agree. The guard is applied as usual.
    #[inline]
    pub fn admit_with(&self, draw: u32) -> Verdict {
        decide_with(&self.table, self.target(), draw)
    }

    /// Decides for a request that may belong to a trace. Where the bucket's coin is coherent, the draw is
    /// derived from the trace and is equal everywhere in the fleet: of all services that the request passes,
    /// the strictest decides. Without a trace, before the fleet's key has arrived, and for any other coin
    /// this is [`admit`](Self::admit). The guard is applied as usual.
    ///
    /// ```
    /// use plimsoll_client::TraceId;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (limiter, _feed) = plimsoll_client::Limiter::builder("shop")?.build()?;
    /// let key = limiter.bucket("checkout")?.key("acme");
    /// let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    /// assert!(key.admit_traced(TraceId::of_traceparent(traceparent.as_bytes())).is_admit());
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn admit_traced(&self, trace: Option<TraceId>) -> Verdict {
        decide_traced(&self.table, self.target(), || trace)
    }

    /// Decides like `admit_by_trace` for a request that counts as `cost` requests.
    #[cfg(feature = "middleware")]
    pub(crate) fn admit_cost_by_trace(&self, cost: u32, trace: impl FnOnce() -> Option<TraceId>) -> Verdict {
        decide_cost_traced(&self.table, self.target(), cost, trace)
    }

    /// Returns the name of the tenant.
    pub(super) fn tenant(&self) -> &str {
        &self.tenant
    }

    /// Returns the id of the bucket.
    pub(super) const fn bucket_id(&self) -> u32 {
        self.bucket
    }

    /// Returns the key's bucket.
    #[cfg(feature = "middleware")]
    pub(crate) fn bucket(&self) -> BucketHandle {
        let KeyPlace { default_key, default_slot, .. } = self.place;
        let place = BucketPlace { bucket: self.bucket, default_key, default_slot };
        BucketHandle { table: Arc::clone(&self.table), place }
    }

    #[inline]
    pub(super) fn target(&self) -> Target {
        self.table.target_of(self.place)
    }

    /// Returns the recorder of a response to a request of this key.
    pub(crate) fn recorder(&self) -> Recorder {
        self.table.responses.recorder_of_key(self.bucket, self.place.key)
    }

    /// Previews the decision about a request.
    #[must_use]
    pub fn peek(&self) -> Peek {
        self.table.peek(self.target())
    }

    /// Returns the decisions counted for this key so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.table.counters.counts(self.place.key)
    }
}

/// Returns the recorder of a response to a request of a tenant. Where canaries are divided by key, takes a look-up.
#[inline]
pub(super) fn recorder_of(table: &Table, place: BucketPlace, tenant: &str) -> Recorder {
    match table.responses.is_divided_by_key() {
        false => table.responses.recorder(place.bucket),
        true => table.responses.recorder_of_key(place.bucket, table.known_target(place, tenant).key),
    }
}

/// Returns the counters and the random generator of the current thread.
#[cfg(not(feature = "testing"))]
#[inline]
pub(super) fn thread_ctx(table: &Table) -> DecideCtx<'_, ThreadRng> {
    DecideCtx { counters: table.counters.current_thread(), draws: ThreadRng }
}

/// Returns the counters of the current thread, and its random generator unless a test has set a seed.
#[cfg(feature = "testing")]
#[inline]
pub(super) fn thread_ctx(table: &Table) -> DecideCtx<'_, crate::testing::Draws<'_>> {
    DecideCtx { counters: table.counters.current_thread(), draws: crate::testing::Draws(table) }
}

/// Decides with the current thread's context.
#[inline]
fn decide(table: &Table, target: Target) -> Verdict {
    table.decide(target, thread_ctx(table))
}

/// Decides for a request that may belong to a trace.
#[inline]
pub(super) fn decide_traced(
    table: &Table,
    target: Target,
    trace: impl FnOnce() -> Option<TraceId>,
) -> Verdict {
    table.decide_traced(target, trace, thread_ctx(table))
}

/// Decides for a request that counts as `cost` requests and may belong to a trace.
#[cfg(feature = "middleware")]
#[inline]
fn decide_cost_traced(
    table: &Table,
    target: Target,
    cost: u32,
    trace: impl FnOnce() -> Option<TraceId>,
) -> Verdict {
    if cost == 1 {
        return decide_traced(table, target, trace);
    }
    let trace = if target.word().uses_trace() { trace() } else { None };
    let drawn = trace.map(|trace| table.draw_key.load().draw(trace));
    table.decide_by(target, cost, drawn, thread_ctx(table))
}

/// Decides for a request that counts as `cost` requests.
#[inline]
pub(super) fn decide_n(table: &Table, target: Target, cost: u32) -> Verdict {
    match cost {
        0 => Verdict::Admit,
        1 => decide(table, target),
        _ => table.decide_by(target, cost, None, thread_ctx(table)),
    }
}

/// Decides by the caller's draw.
#[inline]
fn decide_with(table: &Table, target: Target, draw: u32) -> Verdict {
    table.decide_by(target, 1, Some(draw), thread_ctx(table))
}
