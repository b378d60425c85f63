//! The streams to several aggregators: one to each, begun and ended as the list of aggregators changes.

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::directive::{Directives, StaleDirective};
use plimsoll_core::exchange::Child;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::Report;
use plimsoll_host::Shared;
use plimsoll_proto::driver::child;
use tokio::net::lookup_host;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{Control, StreamLog, dial};
use crate::subscription::Subscription;
use crate::subscription::assignment::EndpointId;
use crate::subscription::assignment::endpoints::{Aggregators, Resolved};

/// The interval between resolutions of a name, with a jitter of a fifth, so that a fleet does not
/// query DNS at one moment.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(10);
/// The shortest interval: a lost stream asks for an early resolution.
const RESOLVE_INTERVAL_MIN: Duration = Duration::from_secs(1);
const RESOLVE_MAX: Duration = Duration::from_secs(5);
const CLEANUP_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn run(control: &Control, shutdown: &CancellationToken) {
    let mut streams = Streams {
        control,
        shutdown,
        lost: Arc::default(),
        stops: HashMap::new(),
        tasks: JoinSet::new(),
    };
    match &control.aggregators {
        Aggregators::List(names) => {
            streams.list(names);
            shutdown.cancelled().await;
        }
        Aggregators::ByName(name) => streams.follow_dns(name).await,
        Aggregators::None | Aggregators::One(_) => {
            debug_assert!(false, "a feed of several aggregators")
        }
    }
    while streams.tasks.join_next().await.is_some() {}
}

struct Streams<'a> {
    control: &'a Control,
    shutdown: &'a CancellationToken,
    /// Notified when a stream is lost.
    lost: Arc<Notify>,
    stops: HashMap<EndpointId, CancellationToken>,
    tasks: JoinSet<EndpointId>,
}

impl Streams<'_> {
    async fn follow_dns(&mut self, name: &str) {
        let lost = Arc::clone(&self.lost);
        let mut resolved = Resolved::default();
        let mut has_warned = false;
        let mut cleanups = interval(CLEANUP_INTERVAL);
        let mut next = Instant::now();
        let mut earliest = next;
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => return,
                _ = cleanups.tick() => self.end_unused(),
                Some(Ok(ended)) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                    self.stops.remove(&ended);
                    self.control.subscription.with(|subscription, _| subscription.end_session(ended));
                }
                () = lost.notified() => next = next.min(earliest),
                () = sleep_until(next) => {
                    let answer = tokio::select! {
                        () = self.shutdown.cancelled() => return,
                        answer = resolve(name) => answer,
                    };
                    match &answer {
                        Ok(_) => has_warned = false,
                        Err(error) => {
                            if !std::mem::replace(&mut has_warned, true) {
                                tracing::warn!(name, %error, "DNS resolution failed; the known aggregators stay");
                            }
                        }
                    }
                    let listed = resolved.on_answer(&answer.unwrap_or_default());
                    self.list(&listed);
                    earliest = Instant::now() + RESOLVE_INTERVAL_MIN;
                    // The names of aggregators that start beside this process come soon.
                    let interval = match listed.is_empty() {
                        true => RESOLVE_INTERVAL_MIN,
                        false => RESOLVE_INTERVAL,
                    };
                    next = Instant::now() + jittered(interval);
                }
            }
        }
    }

    fn list(&mut self, names: &[Arc<str>]) {
        let new = self
            .control
            .subscription
            .with(|subscription, now| subscription.list_endpoints(now, names));
        for (id, name) in new {
            let dial = match dial(&name, &self.control.security) {
                Ok(dial) => dial,
                // A name that is loopback by its spelling, and not by its address.
                Err(error) => {
                    tracing::error!(endpoint = %name, %error, "aggregator not connected");
                    continue;
                }
            };
            let stop = self.shutdown.child_token();
            self.stops.insert(id, stop.clone());
            let subscription = self.control.subscription.clone();
            let child = Shared::new(SessionChild {
                subscription: subscription.clone(),
                id,
            });
            let lost = Arc::clone(&self.lost);
            let on_lost = move || {
                subscription.with(|subscription, now| subscription.on_lost(id, now));
                lost.notify_one();
            };
            let Control {
                counters, table, ..
            } = self.control;
            let log = StreamLog::new(counters, table, &name, on_lost);
            self.tasks.spawn(async move {
                child::run(child, dial, stop, log).await;
                id
            });
        }
    }

    /// Ends the streams to aggregators that are not listed any more and own no bucket.
    fn end_unused(&mut self) {
        let unused = self
            .control
            .subscription
            .with(|subscription, _| subscription.remove_unused_endpoints());
        unused
            .iter()
            .filter_map(|id| self.stops.get(id))
            .for_each(CancellationToken::cancel);
    }
}

/// Returns all addresses of a name. An empty answer is an error.
async fn resolve(name: &str) -> Result<Vec<SocketAddr>, Box<dyn Error + Send + Sync>> {
    let answer: Vec<_> = timeout(RESOLVE_MAX, lookup_host(name)).await??.collect();
    if answer.is_empty() {
        Err("the answer is empty".into())
    } else {
        Ok(answer)
    }
}

fn jittered(span: Duration) -> Duration {
    // Without entropy all clients resolve together, which is no worse than without jitter.
    let draw = f64::from(getrandom::u32().unwrap_or_default()) / f64::from(u32::MAX);
    span.mul_f64(0.8 + 0.4 * draw)
}

struct SessionChild {
    subscription: Shared<Subscription>,
    id: EndpointId,
}

impl Child for SessionChild {
    fn on_open(&mut self, _now: MonoTime) {
        self.subscription
            .with(|subscription, _| subscription.open_stream(self.id));
    }

    fn report(&mut self, _now: MonoTime) -> Report {
        // All streams use the clock of the subscription that they share.
        self.subscription
            .with(|subscription, now| subscription.report_to(self.id, now))
    }

    fn on_directives(
        &mut self,
        _now: MonoTime,
        directives: Directives,
    ) -> Result<(), StaleDirective> {
        self.subscription
            .with(|subscription, now| subscription.apply(self.id, now, directives))
    }

    fn on_farewell_read(&mut self, _now: MonoTime) {
        self.subscription
            .with(|subscription, _| subscription.on_read_by(self.id));
    }

    fn is_report_due(&self) -> bool {
        self.subscription
            .with(|subscription, _| subscription.is_report_due_to(self.id))
    }

    fn report_interval(&self) -> Duration {
        self.subscription
            .with(|subscription, _| subscription.report_interval_to(self.id))
    }
}
