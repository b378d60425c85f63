//! A client among thousands: the limiter of a service, with its stream and a steady load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use plimsoll_client::{BucketHandle, Limiter, Subscription};
use plimsoll_core::directive::{Directives, StaleDirective};
use plimsoll_core::exchange::Child;
use plimsoll_core::kill::KillGeneration;
use plimsoll_core::names::{Name, Zone};
use plimsoll_core::quantity::{MonoTime, Rate};
use plimsoll_core::report::{Identity, InstanceId, Report, Role};
use plimsoll_proto::driver::child::traffic::Traffic;
use plimsoll_proto::driver::child::{Observer, StreamError};

use super::controller::{BUCKET, decision_of, tenant};
use super::kills::Kills;
use super::propagation::Propagation;
use super::storm::Storm;

/// Keys of a client besides one for each tenant in the directives.
const KEYS_SPARE: usize = 4;

/// The shared counts of the clients of one aggregator.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    pub(crate) propagation: Propagation,
    pub(crate) kills: Kills,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) storm: Storm,
    pub(crate) connected: AtomicUsize,
    pub(crate) lost: AtomicU64,
    /// Decided requests.
    pub(crate) asked: AtomicU64,
}

/// The requests that a client decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Requests/s.
    pub(crate) rps: f64,
    /// Time from the first report on; `None` is for ever.
    pub(crate) lasts: Option<Duration>,
}

/// A client, driven by its stream.
#[derive(Debug)]
pub(crate) struct Client {
    subscription: Subscription,
    bucket: BucketHandle,
    tenant: String,
    load: Load,
    /// Requests that are due and not yet decided, below 1.
    due: f64,
    reported: Option<MonoTime>,
    /// Time for which it has decided requests.
    asked_for: Duration,
    clients: Arc<Clients>,
    /// The latest decision that it has applied.
    applied: u64,
    kill: KillGeneration,
}

impl Client {
    /// Creates client `number`, which decides requests of one of `tenants`.
    pub(crate) fn new(
        number: usize,
        tenants: usize,
        load: Load,
        clients: Arc<Clients>,
    ) -> anyhow::Result<Self> {
        let mut instance = [0; 16];
        getrandom::fill(&mut instance)?;
        let identity = Identity {
            instance: InstanceId(u128::from_be_bytes(instance)),
            name: Name::new(&format!("client-{number}"))?,
            service: Name::new("streams")?,
            zone: Zone::new("default")?,
            role: Role::Client,
        };
        let (limiter, subscription) =
            Limiter::without_transport(identity, tenants + KEYS_SPARE, 0, number as u64);
        let bucket = limiter.bucket(BUCKET)?;
        let tenant = tenant(number % tenants.max(1));
        Ok(Self {
            subscription,
            bucket,
            tenant,
            load,
            due: 0.0,
            reported: None,
            asked_for: Duration::ZERO,
            clients,
            applied: 0,
            kill: KillGeneration(0),
        })
    }

    /// A handle for decisions on another thread.
    pub(crate) fn bucket(&self) -> BucketHandle {
        self.bucket.clone()
    }

    /// Decides the requests that are due since the last report, also those of a time without a stream.
    fn decide_due(&mut self, now: MonoTime) {
        let since = self.reported.replace(now).map_or(Duration::ZERO, |last| now.since(last));
        if self.load.lasts.is_some_and(|lasts| self.asked_for >= lasts) {
            return;
        }
        self.asked_for += since;
        self.due += self.load.rps * since.as_secs_f64();
        while self.due >= 1.0 {
            self.due -= 1.0;
            let _ = self.bucket.admit(&self.tenant);
            self.clients.asked.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Child for Client {
    fn on_open(&mut self, now: MonoTime) {
        self.subscription.on_open(now);
    }

    fn report(&mut self, now: MonoTime) -> Report {
        self.decide_due(now);
        self.subscription.report(now)
    }

    fn on_directives(&mut self, now: MonoTime, directives: Directives) -> Result<(), StaleDirective> {
        let limit = directives.buckets.iter().find(|bucket| bucket.bucket.as_str() == BUCKET);
        let decision = limit.and_then(|bucket| bucket.terms.limit.per_second()).map(Rate::per_second);
        let pushed = directives.seq > 1;
        let kill = directives.kill;
        let applied = self.subscription.on_directives(now, directives);
        if self.kill.merge(kill) {
            self.clients.kills.on_applied(kill);
        }
        if let Some(number) = decision.and_then(decision_of).filter(|number| *number > self.applied) {
            self.applied = number;
            // The first directives of a stream are not pushed, so their age is no propagation time.
            if pushed && applied.is_ok() {
                self.clients.propagation.on_applied(number, Instant::now());
            }
        }
        applied
    }

    fn is_report_due(&self) -> bool {
        self.subscription.is_report_due()
    }

    fn report_interval(&self) -> Duration {
        self.subscription.report_interval()
    }
}

/// Counts the connected clients and lost streams of one client. Dropping it closes its stream.
#[derive(Debug)]
pub(crate) struct Connections {
    clients: Arc<Clients>,
    is_connected: bool,
}

impl Connections {
    pub(crate) fn new(clients: Arc<Clients>) -> Self {
        Self { clients, is_connected: false }
    }
}

impl Observer for Connections {
    fn on_connected(&mut self, _zone: Option<&str>) {
        self.is_connected = true;
        let connected = self.clients.connected.fetch_add(1, Ordering::Relaxed) + 1;
        self.clients.storm.on_connected(connected, Instant::now());
    }

    fn on_disconnected(&mut self, why: &StreamError, was_connected: bool) {
        tracing::debug!(%why, was_connected, "stream ended");
        if was_connected {
            self.is_connected = false;
            self.clients.connected.fetch_sub(1, Ordering::Relaxed);
            self.clients.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        if self.is_connected {
            self.clients.connected.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
