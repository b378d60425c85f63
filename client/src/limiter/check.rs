//! The verbs of a limiter: decisions in memory, decisions that may wait, and previews.

use std::sync::Arc;

use futures_util::FutureExt;
use plimsoll_core::decision::trace::TraceId;
use plimsoll_core::decision::{Reason, Verdict};
use tokio::time::{Instant, sleep_until};

use super::handles::thread_ctx;
use super::layered::{Each, QuotaLeft, Step, Subject, name_of};
use super::request::{Request, RequestOf};
use super::waiting::wait;
use super::{BucketHandle, KeyHandle, Limiter};
use crate::hot::decision::{Decided, Part, Peek};
use crate::hot::table::Target;
use crate::setup::SetupProblem;

impl Limiter {
    /// Decides about a request, in memory: never fails and, for up to eight keys without exact quotas, never blocks,
    /// allocates or makes a system call. Without a directive a request is admitted and counted, unless
    /// `before_policy` or `cold_rps` of the builder says otherwise.
    ///
    /// It does not wait for the store of exact quotas. It uses the leases and the remembered refusals of this
    /// instance. Where these do not decide, it acts as if the store did not answer, by `on_store_error`. Ask about
    /// buckets with quotas by [`check_async`](Self::check_async); this call about one is a
    /// [setup problem](Self::setup_problems).
    ///
    /// ```
    /// use plimsoll_client::{Limiter, Refusal, Request};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (limiter, _feed) = Limiter::builder("shop").build()?;
    /// let checkout = limiter.bucket("checkout")?;
    /// let handler = |tenant: &str| -> Result<&str, Refusal> {
    ///     limiter.check(&Request::new(&checkout, tenant)).ok()?;
    ///     Ok("paid")
    /// };
    /// assert_eq!(handler("acme"), Ok("paid"));
    /// # Ok(()) }
    /// ```
    #[inline(always)]
    pub fn check(&self, request: &Request<'_>) -> Verdict {
        if self.table.quotas.any() {
            return self.check_with_quotas(*request);
        }
        match request.several() {
            None => match self.target(request) {
                Some(target) => match (request.cost, request.trace) {
                    (1, None) => self.table.decide(target, thread_ctx(&self.table)),
                    (cost, trace) => self.decide(target, cost, || trace),
                },
                None => Verdict::Admit,
            },
            Some(requests) => self.check_several(requests, request.trace),
        }
    }

    /// Decides about a request like [`check`](Self::check), by the exact quotas of its buckets as
    /// well, and waits for an admission as long as the [request](Request::within) allows.
    ///
    /// # Quotas
    ///
    /// The limiter asks the store that `LimiterBuilder::quota_store` has set only about requests
    /// that coin and guard admit, at most for its deadline. A quota refuses for
    /// [`Reason::TenantQuotaExceeded`], until its reset, or for [`Reason::QuotaDegraded`] if the
    /// store does not answer and the quota is to deny then. A refusal of the store is remembered:
    /// the requests after it are refused before the coin. In shadow mode, while killed and outside
    /// of the canary the quota is debited and its refusals are only counted. All quotas of several
    /// keys are debited or none. A future that is dropped leaves the request counted as admitted,
    /// and what the store debits for it is given back.
    ///
    /// # Waiting, for background jobs
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use plimsoll_client::{Limiter, Request};
    ///
    /// # let (limiter, _feed) = Limiter::builder("shop").build()?;
    /// let writes = limiter.bucket("search-writes")?;
    /// let write = Request::new(&writes, "reindex").within(Duration::from_secs(60));
    /// for document in 0..3 {
    ///     limiter.check_async(&write).await.ok()?; // fails after a minute without an admission
    ///     // write the document
    /// #   let _ = document;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// * **Order.** The waiters of a key in this process are admitted in the order in which they
    ///   arrived. Only the first asks; the others sleep.
    /// * **Rate.** A job that waits in a loop gets what its tenant may have: the whole limit while
    ///   it has no competition, and its fair share next to other tenants. A job that sleeps for
    ///   `retry_after` after each refusal gets a quarter to two thirds of that.
    /// * **Attempts.** Each attempt is a decision, and counts as offered, as a refused one does as
    ///   dropped. While the coin refuses, the waiters of a key in one process ask for at most 1.25
    ///   times the requests/s that are admitted, a tenth of the key's other requests in this
    ///   process, or 4 requests/s, the maximum of the three; but at least once in 2 s. While only
    ///   the guard is empty, they look at it and are not counted.
    /// * **Cancellation.** Dropping the future gives the place in the queue up. The same poll
    ///   counts and returns an admission, so none is lost.
    /// * **Bound.** A limiter has at most 10,000 waiters; a further one is refused immediately, and
    ///   is not counted as offered. Nor is a waiter that reaches its deadline behind others.
    ///
    /// A request of several keys, and a request that a quota has refused, asks again after each
    /// `retry_after`. The wait needs a tokio runtime with its timer.
    pub async fn check_async(&self, request: &Request<'_>) -> Verdict {
        let started = Instant::now();
        loop {
            let left = request.within.saturating_sub(started.elapsed());
            let waits = !left.is_zero() && request.cost > 0;
            let queued = waits.then(|| self.key(request)).flatten();
            let verdict = match &queued {
                Some(key) => {
                    let of = RequestOf::Key(key);
                    wait(self, key, &Request { of, ..*request }, left).await
                }
                None => verdict(&self.each(request, true).await),
            };
            let Verdict::Refuse(refusal) = verdict else {
                return verdict;
            };
            let is_quota = matches!(
                refusal.reason(),
                Reason::TenantQuotaExceeded | Reason::QuotaDegraded
            );
            let left = request.within.saturating_sub(started.elapsed());
            // A queue refuses when it is full or at the deadline, which is final. A quota may admit later.
            if (queued.is_some() && !is_quota) || refusal.retry_after() >= left {
                return verdict;
            }
            sleep_until(Instant::now() + refusal.retry_after()).await;
        }
    }

    /// Previews the decision about a request. A new name takes no room.
    #[must_use]
    pub fn peek(&self, request: &Request<'_>) -> Peek {
        match request.several() {
            None => self
                .known_target(request.of, request.tenant)
                .map_or_else(Peek::default, |target| self.table.peek(target)),
            Some(requests) => requests.iter().map(|request| self.peek(request)).fold(
                Peek::default(),
                |one, other| Peek {
                    ratio: one.ratio.max(other.ratio),
                    enforced: one.enforced || other.enforced,
                    exhausted: one.exhausted || other.exhausted,
                },
            ),
        }
    }

    /// Returns true if the requests of a bucket are subject to exact quotas here: a directive has brought some, and
    /// there is a store.
    #[must_use]
    pub fn has_quotas(&self, bucket: &str) -> bool {
        self.table
            .known_bucket(bucket)
            .is_some_and(|place| self.table.quotas_of(place.bucket).is_some())
    }

    /// Returns the exact quota of a request's tenant with the least left, by the last answers of
    /// the store: for answers to admitted requests. `None` for buckets without quotas, and while
    /// the store does not answer.
    #[must_use]
    pub fn quota_left(&self, request: &Request<'_>) -> Option<QuotaLeft> {
        let store = self.table.layered.store()?;
        let place = self.table.known_bucket(request.bucket())?;
        let quotas = self.table.quotas_of(place.bucket)?;
        let (tenant, plan) = (name_of(request.tenant), request.of.plan());
        let key = self.table.known_target(place, request.tenant, plan).key;
        let quotas = quotas.of_tenant(&tenant, self.table.plan_of(key, plan));
        let left = quotas.iter().filter_map(|quota| store.left(quota, &tenant));
        left.min_by_key(|left| left.remaining)
    }

    /// Decides by coin and guard. `trace` is evaluated only where a coherent coin needs it.
    #[inline]
    pub(crate) fn decide(
        &self,
        target: Target,
        cost: u32,
        trace: impl FnOnce() -> Option<TraceId>,
    ) -> Verdict {
        if cost == 1 {
            return self
                .table
                .decide_traced(target, trace, thread_ctx(&self.table));
        }
        let trace = if target.word().uses_trace() {
            trace()
        } else {
            None
        };
        self.table
            .decide_in_full(target, cost, trace, thread_ctx(&self.table))
            .verdict
    }

    #[inline(never)]
    fn check_with_quotas(&self, request: Request<'_>) -> Verdict {
        // It does not wait, so it is ready with the first poll.
        self.each(&request, false)
            .now_or_never()
            .map_or(Verdict::Admit, |each| verdict(&each))
    }

    #[inline(never)]
    fn check_several(&self, requests: &[Request<'_>], trace: Option<TraceId>) -> Verdict {
        if let [request] = requests
            && request.several().is_none()
        {
            return self.check(&request.trace(trace));
        }
        // The most frequent number, without a list.
        if let [one, other] = requests
            && let (Some(one), Some(other)) = (self.part(one), self.part(other))
        {
            return self
                .table
                .decide_parts(&mut [one, other], trace, thread_ctx(&self.table))
                .0;
        }
        let mut parts: Each<Part> = requests
            .iter()
            .filter_map(|request| self.part(request))
            .collect();
        self.table
            .decide_parts(&mut parts, trace, thread_ctx(&self.table))
            .0
    }

    #[inline(always)]
    fn part(&self, request: &Request<'_>) -> Option<Part> {
        Some(Part::new(self.target(request)?, request.cost))
    }

    /// Returns the target of a request of one key; `None` for a bucket without room. A request without a cost takes
    /// no room.
    #[inline(always)]
    pub(crate) fn target(&self, request: &Request<'_>) -> Option<Target> {
        match request.of {
            RequestOf::Key(key) => Some(key.target()),
            RequestOf::Bucket(bucket) if request.cost > 0 => {
                debug_assert!(
                    Arc::ptr_eq(&self.table, &bucket.table),
                    "the bucket belongs to another limiter"
                );
                Some(self.table.target(bucket.place, request.tenant))
            }
            RequestOf::Name(name) if request.cost > 0 => {
                self.table.target_by_names(name, request.tenant)
            }
            RequestOf::BucketInPlan(bucket, plan) if request.cost > 0 => Some(
                self.table
                    .target_in_plan(bucket.place, request.tenant, plan),
            ),
            RequestOf::NameInPlan(name, plan) if request.cost > 0 => {
                let find = |place| self.table.target_in_plan(place, request.tenant, plan);
                self.table.target_in(name, find)
            }
            of => self.known_target(of, request.tenant),
        }
    }

    #[cold]
    fn known_target(&self, of: RequestOf<'_>, tenant: &str) -> Option<Target> {
        let place = match of {
            RequestOf::Key(key) => return Some(key.target()),
            RequestOf::Bucket(bucket) | RequestOf::BucketInPlan(bucket, _) => bucket.place,
            RequestOf::Name(name) | RequestOf::NameInPlan(name, _) => {
                self.table.known_bucket(name)?
            }
            RequestOf::All(_) => {
                self.table.problems.raise(SetupProblem::NestedRequest);
                return None;
            }
        };
        Some(self.table.known_target(place, tenant, of.plan()))
    }

    #[inline]
    pub(crate) fn subject<'a>(&self, request: &Request<'a>) -> Option<Subject<'a>> {
        let target = self.target(request)?;
        let bucket = match request.of {
            RequestOf::Key(key) => key.bucket,
            RequestOf::Bucket(bucket) | RequestOf::BucketInPlan(bucket, _) => bucket.place.bucket,
            _ => self.table.keys.owner_of(target.key),
        };
        Some(Subject {
            target,
            bucket,
            tenant: request.tenant,
            plan: request.of.plan(),
            cost: request.cost,
        })
    }

    pub(crate) fn begin(&self, request: &Request<'_>, waits: bool) -> Step {
        match self.subject(request) {
            Some(subject) => self.table.begin(subject, request.trace, waits),
            None => Step::Decided(Decided::ADMITTED),
        }
    }

    /// Resolves the key of a request of one key. A name is declared.
    pub(crate) fn key(&self, request: &Request<'_>) -> Option<KeyHandle> {
        let resolve = |bucket: &BucketHandle| bucket.resolve(request.tenant, request.of.plan());
        match request.of {
            RequestOf::Key(key) => Some(key.clone()),
            RequestOf::Bucket(bucket) | RequestOf::BucketInPlan(bucket, _) => Some(resolve(bucket)),
            RequestOf::Name(name) | RequestOf::NameInPlan(name, _) => {
                self.bucket(name).ok().map(|bucket| resolve(&bucket))
            }
            RequestOf::All(_) => None,
        }
    }
}

fn verdict(each: &[Decided]) -> Verdict {
    each.iter()
        .map(|decided| decided.verdict)
        .find(|verdict| !verdict.is_admit())
        .unwrap_or(Verdict::Admit)
}
