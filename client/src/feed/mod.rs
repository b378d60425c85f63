//! The feed: keeps a limiter's directives up to date over a stream to each of its aggregators, off the
//! request path.

pub(crate) mod cache;
mod cache_writer;
mod health;
mod kill_file;
mod stream_log;
mod streams;

use cache_writer::CacheWriter;
pub(crate) use health::Counters;
pub use health::{CertificateHealth, FeedHealth};
pub(crate) use kill_file::{KILL_VARIABLE, LocalKill};
use stream_log::StreamLog;

use std::sync::Arc;

use plimsoll_core::exchange::other_controllers::Sighting;
use plimsoll_core::law::Parameters;
use plimsoll_proto::driver::child;
use plimsoll_proto::shared::Shared;
use plimsoll_proto::transport::{Dial, InvalidEndpoint, Security};
#[cfg(feature = "tls")]
use plimsoll_tls::Certificates;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::feed::cache::CacheFile;
use crate::subscription::Subscription;
use crate::subscription::assignment::endpoints::{Aggregators, Scheme};

/// Carries reports up and directives down for one limiter. Made by
/// [`LimiterBuilder::build`](crate::LimiterBuilder::build).
///
/// While the feed is not running, or no aggregator can be reached, the limiter applies the directives it
/// holds: it neither opens nor closes, and no count is lost while the process lives.
#[derive(Clone, Debug)]
pub struct Feed {
    pub(crate) subscription: Shared<Subscription>,
    pub(crate) aggregators: Aggregators,
    pub(crate) security: Security,
    /// The file that directives are saved in; `None` if they are not.
    pub(crate) cache: Option<CacheFile>,
    /// True if the service has set a rate for a bucket, which needs refills even without a stream.
    pub(crate) has_cold_rates: bool,
    pub(crate) local_kill: LocalKill,
    pub(crate) counters: Arc<Counters>,
}

impl Feed {
    /// Runs until `shutdown` is cancelled, then sends each aggregator a last report, so that none waits for a
    /// return. The guards are refilled all the while.
    ///
    /// Ends at once if there is nothing to do: no aggregator, no rate of the service's own, and no kill file.
    pub async fn run(self, shutdown: CancellationToken) {
        let streams = async {
            match &self.aggregators {
                Aggregators::None if self.has_cold_rates || self.local_kill.can_change() => {
                    shutdown.cancelled().await;
                }
                Aggregators::None => {}
                Aggregators::One(endpoint) => {
                    let log = StreamLog::new(Arc::clone(&self.counters));
                    match dial(endpoint, &self.security) {
                        Ok(dial) => {
                            child::run(self.subscription.clone(), dial, shutdown.clone(), log).await;
                        }
                        Err(error) => debug_assert!(false, "{error}, which the builder has excluded"),
                    }
                }
                Aggregators::List(_) | Aggregators::ByName(_) => streams::run(&self, &shutdown).await,
            }
        };
        let writer = self.cache.as_ref().map(|file| CacheWriter {
            file,
            subscription: &self.subscription,
            failures: &self.counters.save_failures,
        });
        let save = async {
            match &writer {
                Some(writer) => writer.run().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = streams => {}
            () = tick(&self.subscription) => {}
            () = save => {}
            () = self.local_kill.follow(&self.subscription) => {}
            () = self.follow_certificates() => {}
        }
        if let Some(writer) = writer {
            writer.save_last().await;
        }
    }

    /// Returns the certificates of this service, if streams need them.
    #[cfg(feature = "tls")]
    pub(crate) const fn certificates(&self) -> Option<&Certificates> {
        match &self.security {
            Security::Plain { .. } => None,
            Security::Mutual(certificates) => Some(certificates),
        }
    }

    /// Follows the files of the certificates. Never ends.
    async fn follow_certificates(&self) {
        #[cfg(feature = "tls")]
        if let Some(certificates) = self.certificates() {
            certificates.follow().await;
        }
        std::future::pending().await
    }

    /// Spawns [`run`](Self::run) on the present tokio runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn spawn(self, shutdown: CancellationToken) -> JoinHandle<()> {
        tokio::spawn(self.run(shutdown))
    }
}

/// Returns the way to an aggregator at `HOST:PORT`, by the scheme that the protection needs.
pub(crate) fn dial(endpoint: &str, security: &Security) -> Result<Dial, InvalidEndpoint> {
    let scheme = match security {
        Security::Plain { .. } => Scheme::Http,
        #[cfg(feature = "tls")]
        Security::Mutual(_) => Scheme::Https,
    };
    Dial::new(&format!("{scheme}://{endpoint}"), security)
}

/// Ticks the subscription, whether there is a stream or not. Never ends.
async fn tick(subscription: &Shared<Subscription>) {
    let mut ticks = interval(Parameters::default().refill);
    // A refill covers the time since the last one, so a missed tick needs no catching up.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let others = subscription.with(|subscription, now| {
            subscription.on_tick(now);
            subscription.other_controllers.take_unlogged(now)
        });
        for (through, Sighting { other, .. }) in others {
            tracing::error!(
                epoch = other.epoch.0,
                instance = other.instance.map(tracing::field::debug),
                through,
                "two controllers run at one epoch: the directives of this one are refused, those of the other apply"
            );
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use std::time::Duration;

    use plimsoll_core::decision::Mode;
    use plimsoll_core::directive::{BucketDirective, Directives, Epoch, KeyDirective, Terms, Values};
    use plimsoll_core::exchange::Child;
    use plimsoll_core::names::{Bucket, Tenant};
    use plimsoll_core::quantity::{Limit, Rate};

    use super::*;
    use crate::Limiter;

    #[tokio::test(start_paused = true)]
    async fn guards_are_refilled_while_the_aggregator_cannot_be_reached() {
        // No process listens on this port.
        let builder = Limiter::builder("shop").unwrap().aggregator("http://127.0.0.1:9").unwrap();
        let (limiter, feed) = builder.build().unwrap();
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
