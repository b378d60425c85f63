//! Decisions with exact quotas, for services and for processes that answer for others.

use std::sync::Arc;

use plimsoll_core::decision::Verdict;
use plimsoll_core::decision::trace::TraceId;
use plimsoll_core::names::Encoded;

use super::exact::QuotaLeft;
use super::one::{Step, name_of};
use crate::hot::table::{Table, Target};
use crate::limiter::handles::thread_ctx;
use crate::limiter::{BucketHandle, Decided, KeyHandle, KeyRequest, Limiter};

impl Limiter {
    /// Decides about a request by names, like [`decide`](Self::decide), and then by the exact quotas of its bucket: only
    /// what coin and guard admit is asked of the store that [`LimiterBuilder::quota_store`] has set. Without quotas, and
    /// without a store, it is `decide`.
    ///
    /// A quota refuses for [`Reason::TenantQuotaExceeded`], until its reset, or for [`Reason::QuotaDegraded`] if the
    /// store does not answer and the quota is to deny then. A refusal of the store is remembered: the requests after it
    /// are refused before the coin, without being asked. In shadow mode, while killed and outside of the canary the
    /// quota is debited and its refusals are only counted.
    ///
    /// Coin and guard decide in the call, and the future waits for the store, at most for its deadline. One that is
    /// dropped before its end leaves the request counted as admitted, and what the store has debited is spent.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use plimsoll_client::KeyRequest;
    ///
    /// let (limiter, _feed) = plimsoll_client::Limiter::builder("shop")?.build()?;
    /// let request = KeyRequest { bucket: "checkout", tenant: "acme", cost: 1 };
    /// let decided = limiter.decide_with_quotas(request, None).await;
    /// assert!(decided.verdict.is_admit() && decided.quota.is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// [`LimiterBuilder::quota_store`]: crate::LimiterBuilder::quota_store
    /// [`Reason::TenantQuotaExceeded`]: crate::Reason::TenantQuotaExceeded
    /// [`Reason::QuotaDegraded`]: crate::Reason::QuotaDegraded
    pub fn decide_with_quotas(
        &self,
        request: KeyRequest<'_>,
        trace: Option<TraceId>,
    ) -> impl Future<Output = Decided> + Send + use<> {
        ended(self.step(request, trace))
    }

    /// Decides about a request that is subject to several keys, like [`decide_together`](Self::decide_together), and then
    /// by the exact quotas of all of them: all or none are debited, in one call if the store holds them together. A
    /// request that a quota refuses counts as refused by a quota for every key. `decided` is cleared, and then has the
    /// result of each key alone.
    ///
    /// Keys whose refusals are not carried out are debited each by itself if the request is admitted.
    pub async fn decide_together_with_quotas(
        &self,
        requests: &[KeyRequest<'_>],
        trace: Option<TraceId>,
        decided: &mut Vec<Decided>,
    ) {
        if let [request] = requests {
            decided.clear();
            decided.push(self.decide_with_quotas(*request, trace).await);
            return;
        }
        match self.table.layered.store().filter(|_| self.have_quotas(requests)) {
            Some(store) => self.decide_together_by_quotas(store, requests, trace, decided).await,
            None => self.decide_together(requests, trace, decided),
        }
    }

    /// Returns true if the requests of a bucket are subject to exact quotas here: a directive has brought some, and there
    /// is a store.
    #[must_use]
    pub fn has_quotas(&self, bucket: &str) -> bool {
        self.table.known_bucket(bucket).is_some_and(|place| self.table.quotas_of(place.bucket).is_some())
    }

    /// Returns the exact quota of a tenant with the least left, as far as this instance has heard from the store: for
    /// answers to admitted requests. `None` for buckets without quotas, and while the store does not answer.
    #[must_use]
    pub fn quota_left(&self, bucket: &str, tenant: &str) -> Option<QuotaLeft> {
        let quotas = self.table.quotas_of(self.table.known_bucket(bucket)?.bucket)?;
        self.table.layered.store()?.left(&quotas, &name_of(tenant))
    }

    fn step(&self, request: KeyRequest<'_>, trace: Option<TraceId>) -> Step {
        let Some(target) = self.target(request) else { return Step::Decided(Decided::ADMITTED) };
        let bucket = self.table.keys.owner_of(target.key);
        self.table.step(bucket, || name_of(request.tenant), target, request.cost, trace)
    }

    fn have_quotas(&self, requests: &[KeyRequest<'_>]) -> bool {
        let place = |request: &KeyRequest<'_>| self.table.known_bucket(request.bucket);
        requests.iter().filter_map(place).any(|place| self.table.quotas.has(place.bucket))
    }
}

impl BucketHandle {
    /// Decides for a tenant by name and by the exact quotas of the bucket; see [`Limiter::decide_with_quotas`].
    pub fn admit_with_quotas(&self, tenant: &str) -> impl Future<Output = Verdict> + Send + use<> {
        self.admit_n_with_quotas(tenant, 1)
    }

    /// Decides for a request that counts as `cost` requests, which takes as many tokens of each quota; see
    /// [`Limiter::decide_with_quotas`].
    pub fn admit_n_with_quotas(
        &self,
        tenant: &str,
        cost: u32,
    ) -> impl Future<Output = Verdict> + Send + use<> {
        let target = self.table.target(self.place, tenant);
        verdict(self.table.step(self.place.bucket, || name_of(tenant), target, cost, None))
    }
}

impl KeyHandle {
    /// Decides for this key and by the exact quotas of its bucket; see [`Limiter::decide_with_quotas`].
    pub fn admit_with_quotas(&self) -> impl Future<Output = Verdict> + Send + use<> {
        verdict(self.table.step(self.bucket_id(), || Encoded::Plain(self.tenant()), self.target(), 1, None))
    }
}

// === For the middleware, which decides without a future where it can ===

#[cfg(feature = "middleware")]
impl BucketHandle {
    /// Begins to decide about a request of a tenant if the bucket has quotas. `trace` is evaluated only then.
    #[inline]
    pub(crate) fn step_by_quotas(
        &self,
        tenant: &str,
        cost: u32,
        trace: impl FnOnce() -> Option<TraceId>,
    ) -> Option<Step> {
        let quotas = self.table.quotas_of(self.place.bucket)?;
        let target = self.table.target(self.place, tenant);
        let key = (self.place.bucket, &*name_of(tenant));
        Some(self.table.decide_layered(&quotas, key, target, cost, trace()))
    }
}

#[cfg(feature = "middleware")]
impl KeyHandle {
    /// Begins to decide about a request of this key if its bucket has quotas. `trace` is evaluated only then.
    #[inline]
    pub(crate) fn step_by_quotas(&self, cost: u32, trace: impl FnOnce() -> Option<TraceId>) -> Option<Step> {
        let quotas = self.table.quotas_of(self.bucket_id())?;
        Some(self.table.decide_layered(
            &quotas,
            (self.bucket_id(), self.tenant()),
            self.target(),
            cost,
            trace(),
        ))
    }
}

impl Table {
    /// Begins to decide about a request, by the quotas of its bucket if it has any.
    fn step<'a>(
        self: &Arc<Self>,
        bucket: u32,
        tenant: impl FnOnce() -> Encoded<'a>,
        target: Target,
        cost: u32,
        trace: Option<TraceId>,
    ) -> Step {
        match self.quotas_of(bucket) {
            None => Step::Decided(self.decide_in_full(target, cost, trace, thread_ctx(self))),
            Some(quotas) => self.decide_layered(&quotas, (bucket, &*tenant()), target, cost, trace),
        }
    }
}

async fn ended(step: Step) -> Decided {
    match step {
        Step::Decided(decided) => decided,
        Step::Asking(asking) => asking.await,
    }
}

async fn verdict(step: Step) -> Verdict {
    ended(step).await.verdict
}
