//! A client among thousands: the limiter of a service, with its stream and a steady load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use plimsoll_client::internals::Subscription;
use plimsoll_client::{BucketHandle, Limiter, Request};
use plimsoll_core::directive::{Directives, StaleDirective};
use plimsoll_core::exchange::Child;
use plimsoll_core::kill::KillGeneration;
use plimsoll_core::names::{Name, Zone};
use plimsoll_core::quantity::{MonoTime, Rate};
use plimsoll_core::report::{Identity, InstanceId, Report, Role};
use plimsoll_proto::driver::child::traffic::Traffic;
use plimsoll_proto::driver::child::{Observer, StreamError};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use super::controller::{BUCKET, bucket, decision_of, tenant};
use super::kills::Kills;
use super::propagation::Propagation;
use super::storm::Storm;

/// Keys of a client in addition to one for each tenant in the directives.
const KEYS_SPARE: usize = 4;
/// Keys of a client for each of its names: busy names, light ones, and some that are free.
const KEYS_PER_NAME: usize = 3;
/// Name number `x^SKEW` of all, for x evenly in 0..1.
const SKEW: i32 = 3;

/// Shared counts of the clients of one aggregator.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    pub(crate) propagation: Propagation,
    pub(crate) kills: Kills,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) storm: Storm,
    pub(crate) connected: AtomicUsize,
    pub(crate) lost: AtomicU64,
    pub(crate) asked: AtomicU64,
    pub(crate) admitted: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Tenants in the directives. It decides for one of them.
    pub(crate) tenants: usize,
    /// Unlisted names and buckets of this client. With them, it ignores the directives' tenants.
    pub(crate) names: Option<(usize, usize)>,
    pub(crate) rps: f64,
    /// Time from the first report on; `None` is forever.
    pub(crate) lasts: Option<Duration>,
}

#[derive(Debug)]
pub(crate) struct Client {
    limiter: Limiter,
    subscription: Subscription,
    targets: Vec<(BucketHandle, String)>,
    rng: SmallRng,
    load: Load,
    /// Requests that are due and not yet decided, below 1.
    due: f64,
    reported: Option<MonoTime>,
    asked_for: Duration,
    clients: Arc<Clients>,
    /// Latest decision that it has applied.
    applied: u64,
    kill: KillGeneration,
}

impl Client {
    pub(crate) fn new(number: usize, load: Load, clients: Arc<Clients>) -> anyhow::Result<Self> {
        let mut instance = [0; 16];
        getrandom::fill(&mut instance)?;
        let identity = Identity {
            instance: InstanceId(u128::from_be_bytes(instance)),
            name: Name::new(&format!("client-{number}"))?,
            service: Name::new("streams")?,
            zone: Zone::new("default")?,
            role: Role::Client,
        };
        let keys = load
            .names
            .map_or(load.tenants + KEYS_SPARE, |(names, buckets)| {
                names * buckets * KEYS_PER_NAME
            });
        let (limiter, subscription) = Limiter::without_transport(identity, keys, 0, number as u64);
        let targets = match load.names {
            None => vec![(
                limiter.bucket(BUCKET)?,
                tenant(number % load.tenants.max(1)),
            )],
            Some((names, buckets)) => {
                let of = |at| {
                    Ok((
                        limiter.bucket(&bucket(at % buckets))?,
                        format!("user-{number}-{}", at / buckets),
                    ))
                };
                (0..names * buckets)
                    .map(of)
                    .collect::<anyhow::Result<_>>()?
            }
        };
        Ok(Self {
            limiter,
            subscription,
            targets,
            rng: SmallRng::seed_from_u64(number as u64),
            load,
            due: 0.0,
            reported: None,
            asked_for: Duration::ZERO,
            clients,
            applied: 0,
            kill: KillGeneration(0),
        })
    }

    pub(crate) fn bucket(&self) -> Option<(Limiter, BucketHandle)> {
        self.targets
            .first()
            .map(|(bucket, _)| (self.limiter.clone(), bucket.clone()))
    }

    pub(crate) fn tick(&mut self, now: MonoTime) {
        self.subscription.on_tick(now);
        self.decide_due(now);
    }

    fn decide_due(&mut self, now: MonoTime) {
        let since = self
            .reported
            .replace(now)
            .map_or(Duration::ZERO, |last| now.since(last));
        if self.load.lasts.is_some_and(|lasts| self.asked_for >= lasts) {
            return;
        }
        self.asked_for += since;
        self.due += self.load.rps * since.as_secs_f64();
        while self.due >= 1.0 {
            self.due -= 1.0;
            let at = self.rng.random::<f64>().powi(SKEW) * self.targets.len() as f64;
            let target = self.targets.get(at as usize);
            let request = target.map(|(bucket, tenant)| Request::new(bucket, tenant));
            if request.is_some_and(|request| self.limiter.check(&request).is_admit()) {
                self.clients.admitted.fetch_add(1, Ordering::Relaxed);
            }
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

    fn on_directives(
        &mut self,
        now: MonoTime,
        directives: Directives,
    ) -> Result<(), StaleDirective> {
        let limit = directives
            .buckets
            .iter()
            .find(|bucket| bucket.bucket.as_str() == BUCKET);
        let decision = limit
            .and_then(|bucket| bucket.terms.limit.per_second())
            .map(Rate::per_second);
        let pushed = directives.seq > 1;
        let kill = directives.kills.fleet;
        let applied = self.subscription.on_directives(now, directives);
        if self.kill.merge(kill) {
            self.clients.kills.on_applied(kill);
        }
        if let Some(number) = decision
            .and_then(decision_of)
            .filter(|number| *number > self.applied)
        {
            self.applied = number;
            // The first directives of a stream are not pushed, so their age is not a propagation
            // time.
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
        Self {
            clients,
            is_connected: false,
        }
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
