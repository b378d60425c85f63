//! Streams to several aggregators: one to each, begun and ended as the list of them changes.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use plimsoll_core::directive::{Directives, StaleDirective};
use plimsoll_core::exchange::Child;
use plimsoll_core::report::Report;
use plimsoll_core::quantity::MonoTime;
use plimsoll_proto::child::{self, Broken, Observer};
use plimsoll_proto::shared::Shared;
use plimsoll_proto::transport;
use tokio::net::lookup_host;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{Feed, Log};
use crate::assignment::endpoints::{Addresses, Aggregators};
use crate::assignment::EndpointId;
use crate::subscription::Subscription;

/// How often a name is resolved again, give or take a fifth, so that a fleet does not ask as one.
const RESOLVE_EVERY: Duration = Duration::from_secs(10);
/// A lost stream asks for it at once, but not more often than this.
const RESOLVE_AT_MOST_EVERY: Duration = Duration::from_secs(1);
/// How long an answer may take.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it is looked at whether a stream is no longer needed.
const RETIRE_EVERY: Duration = Duration::from_secs(1);

/// The streams there are.
struct Conversations<'a> {
    feed: &'a Feed,
    shutdown: &'a CancellationToken,
    /// Rung when a stream is lost.
    lost: Arc<Notify>,
    stops: HashMap<EndpointId, CancellationToken>,
    tasks: JoinSet<EndpointId>,
}

impl Feed {
    /// Keeps a stream to every aggregator until `shutdown` is cancelled, then says farewell to each.
    pub(super) async fn converse(&self, shutdown: &CancellationToken) {
        let mut conversations = Conversations {
            feed: self,
            shutdown,
            lost: Arc::default(),
            stops: HashMap::new(),
            tasks: JoinSet::new(),
        };
        match &self.aggregators {
            Aggregators::List(names) => {
                conversations.list(names);
                shutdown.cancelled().await;
            }
            Aggregators::ByName(name) => conversations.follow(name).await,
            Aggregators::None | Aggregators::One(_) => {}
        }
        while conversations.tasks.join_next().await.is_some() {}
    }
}

impl Conversations<'_> {
    /// Resolves a name again and again until the shutdown.
    async fn follow(&mut self, name: &str) {
        let lost = Arc::clone(&self.lost);
        let mut addresses = Addresses::default();
        let mut is_quiet = false;
        let mut next = Instant::now();
        let mut earliest = next;
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => return,
                () = sleep(RETIRE_EVERY) => self.retire(),
                Some(Ok(ended)) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                    self.stops.remove(&ended);
                    self.feed.subscription.with(|subscription, _| subscription.forget(ended));
                }
                () = lost.notified() => next = next.min(earliest),
                () = sleep_until(next) => {
                    let answer = tokio::select! {
                        () = self.shutdown.cancelled() => return,
                        answer = resolve(name) => answer,
                    };
                    match &answer {
                        Ok(_) => is_quiet = false,
                        Err(why) => {
                            self.feed.health.resolve_failures.fetch_add(1, Ordering::Relaxed);
                            if !std::mem::replace(&mut is_quiet, true) {
                                tracing::warn!(name, %why, "the aggregators' name cannot be resolved; those known stay");
                            }
                        }
                    }
                    let listed = addresses.answered(&answer.unwrap_or_default());
                    self.list(&listed);
                    earliest = Instant::now() + RESOLVE_AT_MOST_EVERY;
                    next = Instant::now() + jittered(RESOLVE_EVERY);
                }
            }
        }
    }

    /// Begins a stream to each aggregator that is new.
    fn list(&mut self, names: &[Arc<str>]) {
        let new = self.feed.subscription.with(|subscription, now| subscription.list(now, names));
        for (id, name) in new {
            let Ok(endpoint) = transport::endpoint(&name) else { continue };
            let stop = self.shutdown.child_token();
            self.stops.insert(id, stop.clone());
            let subscription = self.feed.subscription.clone();
            let child = Shared::new(OneOf { subscription: subscription.clone(), id });
            let log = Log::new(Arc::clone(&self.feed.health));
            let observer = Witness { log, subscription, id, name, lost: Arc::clone(&self.lost) };
            self.tasks.spawn(async move {
                child::run(child, endpoint, stop, observer).await;
                id
            });
        }
    }

    /// Ends the streams that nothing needs any more.
    fn retire(&mut self) {
        for id in self.feed.subscription.with(|subscription, _| subscription.retire()) {
            if let Some(stop) = self.stops.get(&id) {
                stop.cancel();
            }
        }
    }
}

/// Everything a name stands for now; an empty answer is none.
async fn resolve(name: &str) -> Result<Vec<std::net::SocketAddr>, Box<dyn Error + Send + Sync>> {
    let answer: Vec<_> = timeout(RESOLVE_TIMEOUT, lookup_host(name)).await??.collect();
    if answer.is_empty() { Err("the answer is empty".into()) } else { Ok(answer) }
}

fn jittered(span: Duration) -> Duration {
    // Without entropy all ask at once, which is no worse than without jitter.
    let draw = f64::from(getrandom::u32().unwrap_or_default()) / f64::from(u32::MAX);
    span.mul_f64(0.8 + 0.4 * draw)
}

/// The conversation with one of several aggregators, as the driver of its stream sees it.
#[derive(Debug)]
struct OneOf {
    subscription: Shared<Subscription>,
    id: EndpointId,
}

impl Child for OneOf {
    fn on_open(&mut self, _now: MonoTime) {
        self.subscription.with(|subscription, _| subscription.open(self.id));
    }

    fn report(&mut self, _now: MonoTime) -> Report {
        // One clock for all streams, that of what they share.
        self.subscription.with(|subscription, now| subscription.report_to(self.id, now))
    }

    fn on_directives(&mut self, _now: MonoTime, directives: Directives) -> Result<(), StaleDirective> {
        self.subscription.with(|subscription, now| subscription.take(self.id, now, directives))
    }

    fn is_report_due(&self) -> bool {
        self.subscription.with(|subscription, _| subscription.is_report_due_to(self.id))
    }

    fn report_interval(&self) -> Duration {
        self.subscription.with(|subscription, _| subscription.interval_of(self.id))
    }
}

/// Tells the subscription when a stream is lost, and the log which.
struct Witness {
    log: Log,
    subscription: Shared<Subscription>,
    id: EndpointId,
    name: Arc<str>,
    lost: Arc<Notify>,
}

impl Observer for Witness {
    fn on_connected(&mut self) {
        let _span = tracing::info_span!("aggregator", endpoint = %self.name).entered();
        self.log.on_connected();
    }

    fn on_disconnected(&mut self, why: &Broken, was_connected: bool) {
        let _span = tracing::info_span!("aggregator", endpoint = %self.name).entered();
        self.subscription.with(|subscription, now| subscription.on_lost(self.id, now));
        self.log.on_disconnected(why, was_connected);
        self.lost.notify_one();
    }

    fn on_refused(&mut self, why: &dyn Error) {
        self.log.on_refused(why);
    }
}
