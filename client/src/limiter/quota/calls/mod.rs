//! The calls to a store: their deadlines, the breaker before them, and the gives, which return tokens to the store
//! and wait while it is away.

pub(super) mod breaker;
mod flight;
mod prober;

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_core::quantity::MonoTime;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::book::holding::Holding;
use super::book::{Book, Demand, KEYS_MAX, Key, LeasedTokens, Reply};
use super::figures::{Figures, StoreCounters};
use super::held::{WAITING_MAX, Waits};
use super::store::{Ask, Failure, LATE_MAX, Store};
use crate::hot::sync::lock;
use breaker::Breaker;
use flight::Flight;
use prober::Prober;

/// Maximum number of calls under way, late ones included. Further ones fail immediately.
pub(crate) const CALLS_MAX: usize = 1_000;
/// Maximum number of gives under way or waiting for a breaker to close. The tokens of further ones
/// are lost.
pub(crate) const GIVES_MAX: usize = 1_000;
const GIVES_AT_ONCE: usize = 64;

pub(super) struct Shared {
    pub(super) book: Book<Waits>,
    pub(super) store: Store,
    pub(super) figures: Figures,
    pub(super) timeout: Duration,
    pub(super) waiting: Arc<Semaphore>,
    name: String,
    breaker: Mutex<Breaker>,
    is_open: AtomicBool,
    is_probing: AtomicBool,
    calls: Arc<Semaphore>,
    gives: Arc<Semaphore>,
    /// The gives that wait for a breaker to close.
    gives_waiting: Mutex<VecDeque<(Key, LeasedTokens)>>,
    is_closed: AtomicBool,
    origin: Instant,
}

impl Shared {
    pub(super) fn new(store: Store, name: String, timeout: Duration, seed: u64) -> Self {
        Self {
            book: Book::new(KEYS_MAX, seed, timeout),
            breaker: Mutex::default(),
            is_open: AtomicBool::new(false),
            is_probing: AtomicBool::new(false),
            store,
            figures: Figures::default(),
            timeout,
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            name,
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
            gives: Arc::new(Semaphore::new(GIVES_MAX)),
            gives_waiting: Mutex::default(),
            is_closed: AtomicBool::new(false),
            origin: Instant::now(),
        }
    }

    pub(super) fn now(&self) -> MonoTime {
        MonoTime::from_elapsed(self.origin.elapsed())
    }

    pub(super) fn is_up(&self) -> bool {
        self.is_answering() && !self.is_closed()
    }

    pub(super) fn is_answering(&self) -> bool {
        !self.is_open.load(Ordering::Relaxed)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    pub(super) fn known<T>(
        &self,
        key: &Key,
        f: impl FnOnce(&mut Holding<Waits>) -> T,
    ) -> Option<T> {
        self.book.known(&self.book.id(&key.quota, &key.tenant), f)
    }

    pub(super) fn with<T>(
        &self,
        key: &Key,
        now: MonoTime,
        f: impl FnOnce(&mut Holding<Waits>) -> T,
    ) -> Option<T> {
        self.book
            .with(&self.book.id(&key.quota, &key.tenant), now, f)
    }

    pub(super) fn counters(&self) -> StoreCounters {
        self.figures.counters(self.is_answering(), self.book.held())
    }

    /// Returns true if the breaker is closed. Sees to it that an open one is probed.
    pub(super) fn passes(self: &Arc<Self>) -> bool {
        let passes = self.is_answering();
        if !passes {
            self.probe(None);
        }
        passes
    }

    /// Asks the store. A store without an answer after the time that a request waits has failed, for the breaker; the
    /// call still ends with its answer, so that no token of it is lost. The caller holds the permit in the result
    /// until the tokens are shared out: a limiter that closes waits for it.
    pub(super) async fn call(
        self: &Arc<Self>,
        asks: Arc<[Ask]>,
    ) -> Result<(Vec<Reply>, OwnedSemaphorePermit), Failure> {
        if !self.passes() {
            self.figures.failed(Failure::Open);
            return Err(Failure::Open);
        }
        let Ok(place) = Arc::clone(&self.calls).try_acquire_owned() else {
            self.figures.failed(Failure::Overflow);
            return Err(Failure::Overflow);
        };
        let sent = self.now();
        let mut answer = pin!(self.store.take(&asks));
        let Ok(result) = timeout(self.timeout, &mut answer).await else {
            self.note(Err(Failure::Timeout));
            let replies = timeout(LATE_MAX, answer)
                .await
                .map_err(|_| Failure::Timeout)??;
            self.figures.late();
            return Ok((replies, place));
        };
        if result.is_ok() {
            self.figures.took(self.now().since(sent));
        }
        let is_granted = |replies: &Vec<Reply>| replies.iter().any(|reply| reply.granted > 0);
        self.note(result.as_ref().map(is_granted).map_err(|failure| *failure));
        Ok((result?, place))
    }

    pub(super) fn fly(self: &Arc<Self>, key: Key, demand: Demand) {
        let flight = Flight {
            shared: Arc::clone(self),
            key,
            is_landed: false,
        };
        // Dropped outside of a runtime, the flight ends the call.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(flight.run(demand));
        }
    }

    /// Returns true if tokens can be given back now. A limiter that closes does not wait for the breaker: this is the
    /// last chance.
    fn may_give(self: &Arc<Self>) -> bool {
        self.is_closed() || self.passes()
    }

    pub(super) fn put_back(self: &Arc<Self>, key: &Key, tokens: LeasedTokens) {
        if tokens.count == 0 {
            return;
        }
        let now = self.now();
        let bank = |holding: &mut Holding<Waits>| match self.is_closed() {
            true => tokens,
            false => holding.bank(&key.quota, tokens, now),
        };
        let beyond = self.known(key, bank).unwrap_or(tokens);
        self.give(key.clone(), beyond);
    }

    /// Gives tokens back to the store in the background, once a breaker before it is closed. Tokens
    /// that would arrive after the refill are lost: they would overfill the bucket.
    pub(super) fn give(self: &Arc<Self>, key: Key, tokens: LeasedTokens) {
        if tokens.count == 0 {
            return;
        }
        if self.may_give() {
            let place = Arc::clone(&self.gives).try_acquire_owned();
            let (Ok(runtime), Ok(place)) = (Handle::try_current(), place) else {
                return self.figures.lost(&key.quota, tokens.count);
            };
            let shared = Arc::clone(self);
            runtime.spawn(async move {
                let _place = place;
                shared.give_now(&key, tokens).await;
            });
            return;
        }
        let waiting = || lock(&self.gives_waiting);
        if waiting().len() >= GIVES_MAX {
            return self.figures.lost(&key.quota, tokens.count);
        }
        waiting().push_back((key, tokens));
        // The breaker may have closed meanwhile.
        if self.is_answering() {
            self.give_waiting();
        }
    }

    /// Gives what has waited for the breaker: it is closed now, or the limiter closes.
    fn give_waiting(self: &Arc<Self>) {
        let waiting = std::mem::take(&mut *lock(&self.gives_waiting));
        waiting
            .into_iter()
            .for_each(|(key, tokens)| self.give(key, tokens));
    }

    /// Gives tokens back. What the store does not acknowledge may have arrived, and is not repeated.
    async fn give_now(self: &Arc<Self>, key: &Key, tokens: LeasedTokens) {
        let now = self.now();
        let is_due = tokens.returnable(now) && self.may_give();
        let given = timeout(
            tokens.ends.since(now).min(LATE_MAX),
            self.store.give(key, tokens.count),
        );
        if is_due && matches!(given.await, Ok(Ok(()))) {
            self.figures.given(tokens.count);
        } else {
            self.figures.lost(&key.quota, tokens.count);
        }
    }

    /// Connects in the background, and asks once: a store that is configured wrongly is in the log before requests are
    /// decided without it.
    pub(super) fn warm(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let shared = Arc::clone(self);
        runtime.spawn(async move {
            if let Err(failure) = shared.store.greet().await {
                shared.open(failure);
            }
        });
    }

    pub(super) async fn close(self: &Arc<Self>, within: Duration) {
        if self.is_closed.swap(true, Ordering::Relaxed) {
            return;
        }
        let all = async {
            let _ = timeout(self.timeout, self.calls.acquire_many(CALLS_MAX as u32)).await;
            self.give_leases().await;
            self.give_waiting();
            // Calls that take longer than a request waits give back late tokens.
            let _ = self.calls.acquire_many(CALLS_MAX as u32).await;
            let _ = self.gives.acquire_many(GIVES_MAX as u32).await;
        };
        if timeout(within, all).await.is_err() {
            tracing::warn!(
                store = self.name,
                "leases of quotas were not all given back in time; their tokens are lost"
            );
        }
    }

    async fn give_leases(self: &Arc<Self>) {
        let mut leases = self.book.drain().into_iter();
        let mut gives = tokio::task::JoinSet::new();
        loop {
            while gives.len() < GIVES_AT_ONCE
                && let Some((key, tokens)) = leases.next()
            {
                let shared = Arc::clone(self);
                gives.spawn(async move { shared.give_now(&key, tokens).await });
            }
            if gives.join_next().await.is_none() {
                return;
            }
        }
    }

    /// Counts a result, and opens the breaker after too many failures.
    fn note(self: &Arc<Self>, result: Result<bool, Failure>) {
        match result {
            Ok(is_granted) => {
                self.figures.answered(is_granted);
                lock(&self.breaker).answered();
            }
            Err(failure) => {
                self.figures.failed(failure);
                if lock(&self.breaker).failed(self.now()) {
                    self.open(failure);
                }
            }
        }
    }

    fn open(self: &Arc<Self>, failure: Failure) {
        if self.is_open.swap(true, Ordering::Relaxed) {
            return;
        }
        let cause = self.store.fault();
        tracing::warn!(
            store = self.name,
            failure = failure.as_str(),
            cause,
            "quota store does not answer: quotas follow on_store_error until it does"
        );
        self.probe(cause);
    }

    fn probe(self: &Arc<Self>, cause: Option<String>) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if !self.is_probing.swap(true, Ordering::AcqRel) {
            runtime.spawn(
                Prober {
                    shared: Arc::clone(self),
                    logged: cause,
                }
                .run(),
            );
        }
    }
}
