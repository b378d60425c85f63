//! The feed: keeps a limiter's directives up to date over a stream to each of its aggregators, off the request path.

mod conversations;
mod kill_file;

pub(crate) use kill_file::{LocalKill, VARIABLE};

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_core::law::Parameters;
use plimsoll_proto::child::{self, Broken, Observer};
use plimsoll_proto::shared::Shared;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::assignment::endpoints::Aggregators;
use crate::cache::file::{Found, Keepsake};
use crate::subscription::Subscription;

/// Carries reports up and directives down for one limiter. Made by [`Settings::build`](crate::Settings::build).
///
/// While nobody runs it, or its aggregators are away, the limiter goes on with what it holds: it never opens up and
/// never closes, and nothing counted is lost while the process lives.
#[derive(Clone, Debug)]
pub struct Feed {
    pub(crate) subscription: Shared<Subscription>,
    pub(crate) aggregators: Aggregators,
    pub(crate) keepsake: Option<Keepsake>,
    /// A bucket has a rate of the service's own, which needs refills whether anybody is connected or not.
    pub(crate) cold: bool,
    pub(crate) local_kill: LocalKill,
    pub(crate) health: Arc<Health>,
}

/// How the feed fares, for metrics.
#[derive(Debug)]
pub(crate) struct Health {
    pub(crate) connected: AtomicU64,
    pub(crate) disconnects: AtomicU64,
    pub(crate) invalid: AtomicU64,
    /// What became of the file with directives at the start.
    pub(crate) found: Found,
    pub(crate) keep_failures: AtomicU64,
    pub(crate) resolve_failures: AtomicU64,
}

impl Health {
    pub(crate) fn new(found: Found) -> Self {
        Self {
            connected: AtomicU64::new(0),
            disconnects: AtomicU64::new(0),
            invalid: AtomicU64::new(0),
            found,
            keep_failures: AtomicU64::new(0),
            resolve_failures: AtomicU64::new(0),
        }
    }
}

impl Feed {
    /// Runs until `shutdown` is cancelled, refilling the guards all the while, then says farewell so that no aggregator
    /// waits for a return. Ends at once if there is no aggregator, no bucket has a rate of its own and there is no
    /// kill file to follow.
    pub async fn run(self, shutdown: CancellationToken) {
        let streams = async {
            match &self.aggregators {
                Aggregators::None if self.cold || self.local_kill.can_change() => shutdown.cancelled().await,
                Aggregators::None => {}
                Aggregators::One(endpoint) => {
                    let log = Log::new(Arc::clone(&self.health));
                    let endpoint = endpoint.as_ref().clone();
                    child::run(self.subscription.clone(), endpoint, shutdown.clone(), log).await;
                }
                Aggregators::List(_) | Aggregators::ByName(_) => self.converse(&shutdown).await,
            }
        };
        tokio::select! {
            () = streams => {}
            () = tick(self.subscription.clone()) => {}
            () = self.keep() => {}
            () = self.observe() => {}
        }
        self.keep_last().await;
    }

    /// Runs on the present tokio runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn spawn(self, shutdown: CancellationToken) -> JoinHandle<()> {
        tokio::spawn(self.run(shutdown))
    }
}

/// Lets time pass for the subscription, whether there is a stream or not. Never ends.
async fn tick(subscription: Shared<Subscription>) {
    let mut ticks = interval(Parameters::default().refill);
    // A refill counts the time since the last one; missed ones are not made up for.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        subscription.with(|subscription, now| subscription.on_tick(now));
    }
}

/// Logs the first failure and the return, not every attempt in between.
struct Log {
    health: Arc<Health>,
    connected: bool,
    quiet: bool,
}

impl Log {
    const fn new(health: Arc<Health>) -> Self {
        Self { health, connected: false, quiet: false }
    }
}

impl Observer for Log {
    fn on_connected(&mut self) {
        self.health.connected.fetch_add(1, Ordering::Relaxed);
        self.connected = true;
        self.quiet = false;
        tracing::info!("the feed is connected");
    }

    fn on_disconnected(&mut self, why: &Broken, was_connected: bool) {
        self.close();
        self.health.disconnects.fetch_add(u64::from(was_connected), Ordering::Relaxed);
        self.health.invalid.fetch_add(u64::from(matches!(why, Broken::Invalid(_))), Ordering::Relaxed);
        if was_connected {
            tracing::warn!(%why, "the feed lost its aggregator; decisions go on with what is held");
        } else if self.quiet {
            tracing::debug!(%why, "the feed is still without its aggregator");
        } else {
            tracing::warn!(%why, "the feed cannot reach its aggregator; decisions go on with what is held");
        }
        self.quiet = true;
    }

    fn on_refused(&mut self, why: &dyn Error) {
        tracing::debug!(%why, "a directive was refused; what was held stays");
    }
}

impl Log {
    fn close(&mut self) {
        if std::mem::take(&mut self.connected) {
            self.health.connected.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Log {
    /// A stream that ended in good order is gone as well.
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use std::time::Duration;

    use plimsoll_core::names::{Bucket, Tenant};
    use plimsoll_core::directive::{BucketDirective, Directives, Epoch, KeyDirective, Terms, Values};
    use plimsoll_core::exchange::Child;
    use plimsoll_core::quantity::{Limit, Rate};
    use plimsoll_core::decision::Mode;

    use super::*;
    use crate::Settings;

    #[tokio::test(start_paused = true)]
    async fn guards_are_refilled_while_the_aggregator_cannot_be_reached() {
        // Nothing listens on the port for services that discard.
        let settings = Settings::new("shop").unwrap().aggregator("http://127.0.0.1:9").unwrap();
        let (limiter, feed) = settings.build().unwrap();
        let key = limiter.bucket("api").unwrap().key("acme");
        let rate = |per_second| Rate::new(per_second).unwrap();
        let limit = Limit::PerSecond(rate(100.0));
        let directive = BucketDirective {
            bucket: Bucket::new("api").unwrap(),
            whole: true,
            terms: Terms { limit, mode: Mode::Enforce, clients: Some(1), ..Terms::default() },
            keys: vec![KeyDirective {
                tenant: Tenant::default_class(),
                values: Values { guard: Some(rate(1_000.0)), ..Values::default() },
            }],
        };
        let message =
            Directives { epoch: Some(Epoch(1)), seq: 1, buckets: vec![directive], ..Directives::default() };
        feed.subscription.with(|subscription, now| {
            subscription.report(now);
            subscription.on_directives(now, message).unwrap();
        });
        let drain = || (0..1_000_000).position(|_| !key.admit().is_admit()).unwrap();
        assert!(drain() > 3);
        assert_eq!(drain(), 0);
        let shutdown = CancellationToken::new();
        let running = feed.spawn(shutdown.clone());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(drain() > 3);
        shutdown.cancel();
        running.await.unwrap();
    }
}
