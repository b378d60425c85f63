//! Waiting for admission, for background jobs: a queue for each key of a process, whose first waiter asks at a pace
//! that the control plane can follow.

mod pace;
mod queues;
#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests;
mod turn;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use plimsoll_core::decision::Verdict;
use plimsoll_core::quantity::MonoTime;
use tokio::time::Instant;

use crate::hot::rng::DrawSource;
use crate::hot::thread_counters::Outcome;
use crate::limiter::handles::thread_ctx;
use crate::limiter::{BucketHandle, KeyHandle, Limiter};
use queues::Queues;

/// The waiters of a limiter, and what became of earlier ones.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    queues: Mutex<Queues>,
    /// The start of the queues' clock.
    origin: OnceLock<Instant>,
    begun: AtomicU64,
    ended: AtomicU64,
    admitted: AtomicU64,
    timed_out: AtomicU64,
    overflowed: AtomicU64,
}

impl KeyHandle {
    /// Waits until a request of this key is admitted, for at most `deadline` from this call, and then returns the last
    /// refusal. For background jobs, which have time; see [`BucketHandle::admit_within`].
    pub fn admit_within(&self, deadline: Duration) -> impl Future<Output = Verdict> + Send + use<> {
        self.admit_n_within(1, deadline)
    }

    /// Waits like [`admit_within`](Self::admit_within) for a request that counts as `cost` requests, and is admitted or
    /// refused as a whole; see [`admit_n`](Self::admit_n).
    pub fn admit_n_within(
        &self,
        cost: u32,
        deadline: Duration,
    ) -> impl Future<Output = Verdict> + Send + use<> {
        turn::wait(self.clone(), cost, self.table.waiting.after(deadline))
    }

    /// Returns a refusal that is not counted, for a request that never came to ask.
    fn refusal(&self, cost: u32) -> Verdict {
        let target = self.target();
        let has_tokens = self.table.has_tokens(target, cost);
        let outcome = if has_tokens { Outcome::Dropped } else { Outcome::GuardDropped };
        let jitter = thread_ctx(&self.table).draws.jitter();
        Verdict::Refuse(target.word().refusal(target.word().reason(outcome), jitter))
    }
}

impl BucketHandle {
    /// Waits until a request of a tenant is admitted, for at most `deadline` from this call, and then returns the last
    /// refusal. For background jobs, which have time: the bucket's limit then sets their pace.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// # let (limiter, _feed) = plimsoll_client::Limiter::builder("shop")?.build()?;
    /// let reindex = limiter.bucket("search-writes")?.key("reindex");
    /// for document in 0..3 {
    ///     if !reindex.admit_within(Duration::from_secs(60)).await.is_admit() {
    ///         break; // a minute without an admission: try again later
    ///     }
    ///     // write the document
    /// #   let _ = document;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Background jobs
    ///
    /// * **Order.** The waiters of a key in this process are admitted in the order in which they came. Only the first
    ///   asks; the others sleep.
    /// * **Rate.** A job that waits in a loop gets what its tenant may have: the whole limit while it is alone, and its
    ///   fair share beside other tenants. One that sleeps for `retry_after` after each refusal gets a quarter to two thirds of
    ///   that.
    /// * **Attempts.** Each attempt is a decision, and counts as offered, as a refused one does as dropped. While the
    ///   coin refuses, the waiters of a key in one process ask for at most 1.25 times the requests/s at which they are
    ///   admitted, a tenth of the key's other requests in this process, or 4 requests/s, whichever is most; but at
    ///   least once in 2 s. While only the guard is empty, they look at it and are not counted.
    /// * **At once** is a request admitted where nothing is refused: without directives, in shadow mode, while killed,
    ///   and outside of the canary.
    /// * **Cancellation.** Dropping the future gives the place in the queue up. An admission is returned in the same
    ///   poll in which it is counted, so none is lost.
    /// * **Bound.** A limiter has at most 10,000 waiters; a further one is refused at once, and is not counted as
    ///   offered. Nor is a waiter whose deadline passes behind others.
    ///
    /// The wait needs a tokio runtime with its timer.
    pub fn admit_within(
        &self,
        tenant: &str,
        deadline: Duration,
    ) -> impl Future<Output = Verdict> + Send + use<> {
        self.key(tenant).admit_within(deadline)
    }

    /// Waits like [`admit_within`](Self::admit_within) for a request that counts as `cost` requests.
    pub fn admit_n_within(
        &self,
        tenant: &str,
        cost: u32,
        deadline: Duration,
    ) -> impl Future<Output = Verdict> + Send + use<> {
        self.key(tenant).admit_n_within(cost, deadline)
    }
}

impl Limiter {
    /// Waits like [`BucketHandle::admit_within`] by names. The bucket is declared; without room for it, or with an
    /// invalid name, the request is admitted at once.
    pub fn admit_within(
        &self,
        bucket: &str,
        tenant: &str,
        deadline: Duration,
    ) -> impl Future<Output = Verdict> + Send + use<> {
        self.admit_n_within(bucket, tenant, 1, deadline)
    }

    /// Waits like [`admit_within`](Self::admit_within) for a request that counts as `cost` requests.
    pub fn admit_n_within(
        &self,
        bucket: &str,
        tenant: &str,
        cost: u32,
        deadline: Duration,
    ) -> impl Future<Output = Verdict> + Send + use<> {
        let wait = self.bucket(bucket).ok().map(|bucket| bucket.admit_n_within(tenant, cost, deadline));
        async move {
            match wait {
                Some(wait) => wait.await,
                None => Verdict::Admit,
            }
        }
    }
}

// === Counts, for metrics ===

impl Waiting {
    /// Returns the number of requests that wait now.
    pub(crate) fn waiters(&self) -> u64 {
        // The later count first: the difference is never negative.
        let ended = self.ended.load(Ordering::Acquire);
        self.begun.load(Ordering::Acquire).saturating_sub(ended)
    }

    /// Returns the number of requests that were admitted after a wait.
    pub(crate) fn admitted(&self) -> u64 {
        self.admitted.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that waited until their deadline.
    pub(crate) fn timed_out(&self) -> u64 {
        self.timed_out.load(Ordering::Relaxed)
    }

    /// Returns the number of requests refused at once because there were too many waiters.
    pub(crate) fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed)
    }

    fn begun(&self) {
        self.begun.fetch_add(1, Ordering::Release);
    }

    fn ended(&self) {
        self.ended.fetch_add(1, Ordering::Release);
    }

    fn decided(&self, verdict: Verdict) {
        let count = if verdict.is_admit() { &self.admitted } else { &self.timed_out };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn overflow(&self) {
        self.overflowed.fetch_add(1, Ordering::Relaxed);
    }
}

// === Lock and clock ===

impl Waiting {
    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the start of the queues' clock.
    fn origin(&self) -> Instant {
        *self.origin.get_or_init(Instant::now)
    }

    fn now(&self) -> MonoTime {
        MonoTime::from_elapsed(Instant::now().saturating_duration_since(self.origin()))
    }
}
