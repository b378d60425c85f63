//! The calls to a store: their deadlines, the breakers before them, and what becomes of answers that come too late.

pub(super) mod breaker;
mod flight;
mod prober;

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_core::quantity::MonoTime;
use plimsoll_core::quota::Quota;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::book::holding::Holding;
use super::book::{Book, BucketId, Demand, KEYS_MAX, Reply, Tokens, lease_ends};
use super::figures::{Figures, StoreCounters};
use super::held::Waits;
use super::store::{Ask, CONNECT_MAX, Failure, LATE_MAX, Store};
use super::taking::WAITING_MAX;
use breaker::Breaker;
use flight::Flight;
use prober::Prober;

/// The calls under way, at most, with those that are late. Further ones fail at once.
pub(crate) const CALLS_MAX: usize = 1_000;
/// The gives under way, at most. The tokens of further ones are lost.
pub(crate) const GIVES_MAX: usize = 1_000;
/// The gives under way when a limiter closes.
const GIVES_AT_ONCE: usize = 64;

/// The state that the requests of a limiter share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) book: Book<Waits>,
    pub(super) store: Store,
    pub(super) figures: Figures,
    pub(super) timeout: Duration,
    /// The requests that wait.
    pub(super) waiting: Arc<Semaphore>,
    name: String,
    parts: Box<[Part]>,
    parts_open: AtomicUsize,
    calls: Arc<Semaphore>,
    gives: Arc<Semaphore>,
    is_closed: AtomicBool,
    origin: Instant,
}

/// The breaker before one part of the keys.
#[derive(Debug)]
struct Part {
    breaker: Mutex<Breaker>,
    is_probing: AtomicBool,
}

type Answer = Pin<Box<dyn Future<Output = Result<Vec<Reply>, Failure>> + Send>>;

impl Shared {
    pub(super) fn new(store: Store, name: String, timeout: Duration, seed: u64) -> Self {
        let part = || Part { breaker: Mutex::new(Breaker::new()), is_probing: AtomicBool::new(false) };
        Self {
            book: Book::new(KEYS_MAX, seed),
            parts: std::iter::repeat_with(part).take(store.parts()).collect(),
            parts_open: AtomicUsize::new(0),
            store,
            figures: Figures::default(),
            timeout,
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            name,
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
            gives: Arc::new(Semaphore::new(GIVES_MAX)),
            is_closed: AtomicBool::new(false),
            origin: Instant::now(),
        }
    }

    pub(super) fn now(&self) -> MonoTime {
        MonoTime::from_elapsed(self.origin.elapsed())
    }

    /// Returns true if no breaker is open and the limiter runs.
    pub(super) fn is_up(&self) -> bool {
        self.is_answering() && !self.is_closed()
    }

    /// Returns true if no breaker is open.
    pub(super) fn is_answering(&self) -> bool {
        self.parts_open.load(Ordering::Relaxed) == 0
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    pub(super) fn counters(&self) -> StoreCounters {
        self.figures.counters(self.is_answering(), self.book.held())
    }

    /// Returns true if the breaker before a key is closed. Sees to it that an open one is probed.
    pub(super) fn passes(self: &Arc<Self>, ask: &Ask) -> bool {
        let at = self.store.part(ask);
        let Some(part) = self.parts.get(at) else { return false };
        if self.is_answering() || part.lock().is_closed() {
            return true;
        }
        self.probe(at, ask, None);
        false
    }

    /// Asks the store, which has one deadline. An answer that comes later gives its tokens back. The place in the result
    /// is held until the tokens have found theirs: a limiter that closes waits for it.
    pub(super) async fn call(
        self: &Arc<Self>,
        asks: Arc<[Ask]>,
    ) -> Result<(Vec<Reply>, OwnedSemaphorePermit), Failure> {
        let first = asks.first().ok_or(Failure::Reply)?;
        if !self.passes(first) {
            self.figures.failed(Failure::Open);
            return Err(Failure::Open);
        }
        let Ok(place) = Arc::clone(&self.calls).try_acquire_owned() else {
            self.figures.failed(Failure::Overflow);
            return Err(Failure::Overflow);
        };
        let sent = self.now();
        let (shared, asked) = (Arc::clone(self), Arc::clone(&asks));
        let mut answer: Answer = Box::pin(async move { shared.store.take(&asked).await });
        match timeout(self.timeout, &mut answer).await {
            Ok(Ok(replies)) => {
                self.figures.took(self.now().since(sent));
                self.note(first, Ok(replies.iter().any(|reply| reply.granted > 0)));
                Ok((replies, place))
            }
            Ok(Err(failure)) => {
                self.note(first, Err(&failure));
                Err(failure)
            }
            Err(_) => {
                self.note(first, Err(&Failure::Timeout));
                tokio::spawn(Arc::clone(self).late(answer, asks, sent, place));
                Err(Failure::Timeout)
            }
        }
    }

    /// Waits for an answer that no request waits for.
    async fn late(
        self: Arc<Self>,
        answer: Answer,
        asks: Arc<[Ask]>,
        sent: MonoTime,
        _place: OwnedSemaphorePermit,
    ) {
        if let Ok(Ok(replies)) = timeout(LATE_MAX, answer).await {
            self.figures.late();
            for (ask, reply) in asks.iter().zip(replies) {
                let ends = lease_ends(&ask.quota, reply.refill_in, sent);
                self.put_back(&ask.quota, &ask.tenant, Tokens { count: reply.granted, ends });
            }
        }
    }

    /// Makes the call of a key for the requests that wait for it, and further calls until none waits.
    pub(super) fn fly(self: &Arc<Self>, id: &BucketId<'_>, demand: Demand) {
        let (quota, tenant) = (Arc::clone(id.quota), Arc::from(id.tenant()));
        let flight = Flight::new(Arc::clone(self), quota, tenant);
        // Dropped outside of a runtime, the flight ends the call.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(flight.run(demand));
        }
    }

    /// Returns tokens to the lease of their key, and those beyond it to the store.
    pub(super) fn put_back(self: &Arc<Self>, quota: &Arc<Quota>, tenant: &Arc<str>, tokens: Tokens) {
        let now = self.now();
        let id = self.book.id(quota, tenant);
        let bank = |holding: &mut Holding<Waits>| match self.is_closed() {
            true => tokens.returnable(now),
            false => holding.bank(quota, tokens, now),
        };
        let beyond = self.book.known(&id, bank).unwrap_or_else(|| tokens.returnable(now));
        self.give(quota, tenant, beyond);
    }

    /// Gives tokens back to the store in the background. They are lost if it does not answer.
    pub(super) fn give(self: &Arc<Self>, quota: &Arc<Quota>, tenant: &Arc<str>, tokens: Tokens) {
        if tokens.count == 0 {
            return;
        }
        let place = Arc::clone(&self.gives).try_acquire_owned();
        if let (Ok(runtime), Ok(place)) = (Handle::try_current(), place) {
            let (shared, ask) = (Arc::clone(self), returned(quota, tenant, tokens.count));
            runtime.spawn(async move {
                let _place = place;
                shared.give_now(&ask, tokens.ends).await;
            });
        }
    }

    /// Gives tokens back that end at `ends`, and not later: after the refill they would come on top of a full bucket.
    async fn give_now(self: &Arc<Self>, ask: &Ask, ends: MonoTime) {
        let within = ends.since(self.now()).min(LATE_MAX);
        if self.passes(ask) && matches!(timeout(within, self.store.give(ask)).await, Ok(Ok(()))) {
            self.figures.given(ask.demand.least);
        }
    }

    /// Connects in the background, and asks once: a store that is configured wrongly is in the log before requests are
    /// decided without it.
    pub(super) fn warm(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        let shared = Arc::clone(self);
        runtime.spawn(async move {
            let Some(ask) = Ask::of_nothing() else { return };
            let asked = async {
                shared.store.connect().await?;
                shared.store.probe(&ask).await
            };
            let failure = match timeout(CONNECT_MAX * 2, asked).await {
                Ok(Ok(())) => return,
                Ok(Err(failure)) => failure,
                Err(_) => Failure::Timeout,
            };
            let at = shared.store.part(&ask);
            let is_opened = shared.parts.get(at).is_some_and(|part| part.lock().open(shared.now(), jitter()));
            if is_opened {
                shared.opened(at, &ask, failure);
            }
        });
    }

    pub(super) async fn close(self: &Arc<Self>, within: Duration) {
        if self.is_closed.swap(true, Ordering::Relaxed) {
            return;
        }
        let all = async {
            // Those that take longer than a request waits give back what comes late.
            let _ = timeout(self.timeout, self.calls.acquire_many(CALLS_MAX as u32)).await;
            self.give_leases().await;
            let _ = self.gives.acquire_many(GIVES_MAX as u32).await;
        };
        if timeout(within, all).await.is_err() {
            tracing::warn!(
                store = self.name,
                "leases of quotas were not all given back in time; their tokens are lost"
            );
        }
    }

    /// Gives all leases back.
    async fn give_leases(self: &Arc<Self>) {
        let mut leases = Vec::new();
        self.book.drain(self.now(), |quota, tenant, tokens| {
            leases.push((returned(quota, &Arc::from(tenant), tokens.count), tokens.ends));
        });
        let mut leases = leases.into_iter();
        let mut gives = tokio::task::JoinSet::new();
        loop {
            while gives.len() < GIVES_AT_ONCE
                && let Some((ask, ends)) = leases.next()
            {
                let shared = Arc::clone(self);
                gives.spawn(async move { shared.give_now(&ask, ends).await });
            }
            if gives.join_next().await.is_none() {
                return;
            }
        }
    }

    /// Counts a result, and opens the breaker after too many failures.
    fn note(self: &Arc<Self>, ask: &Ask, result: Result<bool, &Failure>) {
        let at = self.store.part(ask);
        let Some(part) = self.parts.get(at) else { return };
        match result {
            Ok(is_granted) => {
                self.figures.answered(is_granted);
                part.lock().answered();
            }
            Err(failure) => {
                self.figures.failed(*failure);
                let is_opened = part.lock().failed(self.now(), jitter());
                if is_opened {
                    self.opened(at, ask, *failure);
                }
            }
        }
    }

    /// Logs that a breaker has opened, and probes the store.
    fn opened(self: &Arc<Self>, at: usize, ask: &Ask, failure: Failure) {
        self.parts_open.fetch_add(1, Ordering::Relaxed);
        let cause = self.store.fault();
        tracing::warn!(
            store = self.name,
            failure = failure.as_str(),
            cause,
            "quota store does not answer: quotas follow on_store_error until it does"
        );
        self.probe(at, ask, cause);
    }

    /// Probes the store in the background until it answers, unless another task does. `cause` is in the log.
    fn probe(self: &Arc<Self>, at: usize, ask: &Ask, cause: Option<String>) {
        let Some(part) = self.parts.get(at) else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        if !part.is_probing.swap(true, Ordering::AcqRel) {
            let prober = Prober::new(Arc::clone(self), at, ask.clone(), cause);
            runtime.spawn(prober.run());
        }
    }
}

impl Part {
    fn lock(&self) -> std::sync::MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns what is given back, as a demand of that many tokens.
fn returned(quota: &Arc<Quota>, tenant: &Arc<str>, tokens: u64) -> Ask {
    let demand = Demand { least: tokens, wanted: tokens };
    Ask { quota: Arc::clone(quota), tenant: Arc::clone(tenant), demand }
}

/// Draws a number uniform over `u32`.
fn jitter() -> u32 {
    getrandom::u32().unwrap_or_default()
}
