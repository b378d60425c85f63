//! One of many clients: the limiter of a service with its stream, and what it does in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use plimsoll_client::{BucketHandle, Limiter, Subscription};
use plimsoll_core::names::{Name, Zone};
use plimsoll_core::directive::{Directives, StaleDirective};
use plimsoll_core::exchange::Child;
use plimsoll_core::kill::KillGeneration;
use plimsoll_core::quantity::Rate;
use plimsoll_core::report::{Identity, InstanceId, Report, Role};
use plimsoll_core::quantity::MonoTime;
use plimsoll_proto::driver::child::{StreamError, Observer};
use plimsoll_proto::driver::child::traffic::Traffic;

use super::control::{BUCKET, decision_of};
use super::hearing::Hearing;
use super::killed::Killed;

/// Room for the tenants of one client, and for those it is told about.
const KEYS_SPARE: usize = 4;

/// What the clients of one aggregator share.
#[derive(Debug)]
pub(crate) struct Crowd {
    pub(crate) hearing: Hearing,
    pub(crate) killed: Killed,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) connected: AtomicUsize,
    pub(crate) lost: AtomicU64,
    /// Requests decided.
    pub(crate) asked: AtomicU64,
}

/// What a client is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asks {
    /// Requests/s.
    pub(crate) rps: f64,
    /// How long, from its first report on; `None`: as long as it lives.
    pub(crate) lasts: Option<Duration>,
}

/// A client as the driver of its stream sees it.
#[derive(Debug)]
pub(crate) struct Client {
    subscription: Subscription,
    bucket: BucketHandle,
    tenant: String,
    asks: Asks,
    /// Requests that are due but not asked yet, as a part of one.
    due: f64,
    reported: Option<MonoTime>,
    asked_for: Duration,
    crowd: Arc<Crowd>,
    heard: u64,
    kill: KillGeneration,
}

impl Client {
    /// Client `number` of all, on behalf of one of `tenants`.
    pub(crate) fn new(number: usize, tenants: usize, asks: Asks, crowd: Arc<Crowd>) -> anyhow::Result<Self> {
        let mut instance = [0; 16];
        getrandom::fill(&mut instance)?;
        let identity = Identity {
            instance: InstanceId(u128::from_be_bytes(instance)),
            name: Name::new(&format!("client-{number}"))?,
            service: Name::new("streams")?,
            zone: Zone::new("default")?,
            role: Role::Client,
        };
        let (limiter, subscription) = Limiter::without_transport(identity, tenants + KEYS_SPARE, 0, number as u64);
        let bucket = limiter.bucket(BUCKET)?;
        let tenant = super::control::tenant(number % tenants.max(1));
        Ok(Self {
            subscription,
            bucket,
            tenant,
            asks,
            due: 0.0,
            reported: None,
            asked_for: Duration::ZERO,
            crowd,
            heard: 0,
            kill: KillGeneration(0),
        })
    }

    /// What decides, for a thread of the service.
    pub(crate) fn bucket(&self) -> BucketHandle {
        self.bucket.clone()
    }

    /// The requests since the last report, decided at once; also those of a time without a stream.
    fn ask(&mut self, now: MonoTime) {
        let since = self.reported.replace(now).map_or(Duration::ZERO, |last| now.since(last));
        if self.asks.lasts.is_some_and(|lasts| self.asked_for >= lasts) {
            return;
        }
        self.asked_for += since;
        self.due += self.asks.rps * since.as_secs_f64();
        while self.due >= 1.0 {
            self.due -= 1.0;
            let _ = self.bucket.admit(&self.tenant);
            self.crowd.asked.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Child for Client {
    fn on_open(&mut self, now: MonoTime) {
        self.subscription.on_open(now);
    }

    fn report(&mut self, now: MonoTime) -> Report {
        self.ask(now);
        self.subscription.report(now)
    }

    fn on_directives(&mut self, now: MonoTime, directives: Directives) -> Result<(), StaleDirective> {
        let limit = directives.buckets.iter().find(|bucket| bucket.bucket.as_str() == BUCKET);
        let decision = limit.and_then(|bucket| bucket.terms.limit.per_second()).map(Rate::per_second);
        let pushed = directives.seq > 1;
        let kill = directives.kill;
        let applied = self.subscription.on_directives(now, directives);
        if self.kill.merge(kill) {
            self.crowd.killed.on_taken_up(kill);
        }
        if let Some(number) = decision.and_then(decision_of).filter(|number| *number > self.heard) {
            self.heard = number;
            // What a stream begins with says nothing of how long a decision takes.
            if pushed && applied.is_ok() {
                self.crowd.hearing.on_heard(number, Instant::now());
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

/// Counts who is there.
#[derive(Debug)]
pub(crate) struct Counting(pub(crate) Arc<Crowd>);

impl Observer for Counting {
    fn on_connected(&mut self) {
        self.0.connected.fetch_add(1, Ordering::Relaxed);
    }

    fn on_disconnected(&mut self, why: &StreamError, was_connected: bool) {
        tracing::debug!(%why, was_connected, "a stream ended");
        if was_connected {
            self.0.connected.fetch_sub(1, Ordering::Relaxed);
            self.0.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}
