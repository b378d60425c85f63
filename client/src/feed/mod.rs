//! The feed: keeps a limiter's directives up to date over a stream to each of its aggregators, off the
//! request path.

pub(crate) mod cache;
mod cache_writer;
mod control;
mod error;
mod handle;
mod health;
mod kill_file;
mod lifecycle;
mod stream_log;
mod streams;

pub(crate) use control::Control;
pub use error::FeedError;
pub use handle::FeedHandle;
pub(crate) use health::Counters;
pub use health::{CertificateHealth, Health};
pub(crate) use kill_file::LocalKill;
pub use lifecycle::FeedState;
pub(crate) use lifecycle::Lifecycle;
use lifecycle::Running;
use stream_log::StreamLog;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::exchange::other_controllers::Sighting;
use plimsoll_core::law::parameters;
use plimsoll_host::Shared;
use plimsoll_proto::driver::child;
use plimsoll_proto::transport::{Dial, InvalidEndpoint, Security};
use tokio::runtime::Handle;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::subscription::Subscription;
use crate::subscription::assignment::endpoints::Aggregators;

/// Time limit for giving back the leases of exact quotas at the end, next to the last reports.
const LEASES_RETURNED_WITHIN: Duration = Duration::from_secs(1);

/// Carries reports up and directives down for one limiter. Made by
/// [`LimiterBuilder::build_detached`](crate::LimiterBuilder::build_detached).
///
/// While the feed is not running, or no aggregator can be reached, the limiter applies the directives it
/// holds, and no count is lost while the process lives. A feed that is dropped without being run is logged, and is a
/// [setup problem](crate::Limiter::setup_problems). So are requests that are decided while it was not run for ten
/// seconds.
#[derive(Debug)]
#[must_use = "a limiter without its feed gets no directives: call Feed::run"]
pub struct Feed {
    pub(crate) control: Arc<Control>,
}

/// The result of a feed that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Flushed {
    /// The decisions that no aggregator has acknowledged: 0 after an orderly stop, and all without an aggregator.
    pub unreported: u64,
}

impl Feed {
    /// Runs the feed on the present runtime. A feed that has nothing to do needs none.
    ///
    /// # Errors
    /// If there is no runtime, or another feed of this process runs for an instance of the same name.
    pub fn spawn(self) -> Result<FeedHandle, FeedError> {
        let shutdown = CancellationToken::new();
        let control = Arc::clone(&self.control);
        let task = match Handle::try_current() {
            Ok(runtime) => {
                let running = Running::begin(Arc::clone(&control))?;
                Some(runtime.spawn(serve(Arc::clone(&control), running, shutdown.clone())))
            }
            Err(_) if control.has_work() => return Err(FeedError::NoRuntime),
            Err(_) => None,
        };
        Ok(FeedHandle {
            control,
            shutdown,
            task,
        })
    }

    /// Runs until `shutdown` is cancelled, then sends each aggregator a last report, so that none
    /// waits for this instance to return, and gives the leases of exact quotas back. The guards are
    /// refilled meanwhile.
    ///
    /// Ends immediately if there is nothing to do: no aggregator, no rate of the service's own, no
    /// kill file and no store of quotas.
    ///
    /// # Errors
    /// If another feed of this process runs for an instance of the same
    /// [name](crate::LimiterBuilder::name).
    pub async fn run(self, shutdown: CancellationToken) -> Result<Flushed, FeedError> {
        let running = Running::begin(Arc::clone(&self.control))?;
        let control = Arc::clone(&self.control);
        drop(self);
        Ok(serve(control, running, shutdown).await)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.control.on_dropped();
    }
}

async fn serve(control: Arc<Control>, running: Running, shutdown: CancellationToken) -> Flushed {
    let leases = async {
        if let Some(store) = control.table.layered.store() {
            store.warm();
            shutdown.cancelled().await;
            store.close(LEASES_RETURNED_WITHIN).await;
        }
    };
    let streams = async {
        match &control.aggregators {
            Aggregators::None if control.has_work() => shutdown.cancelled().await,
            Aggregators::None => {}
            Aggregators::One(endpoint) => {
                let log = StreamLog::new(&control.counters, &control.table, endpoint, || {});
                match dial(endpoint, &control.security) {
                    Ok(dial) => {
                        child::run(control.subscription.clone(), dial, shutdown.clone(), log).await;
                    }
                    Err(error) => debug_assert!(false, "{error}, which the builder has excluded"),
                }
            }
            Aggregators::List(_) | Aggregators::ByName(_) => {
                streams::run(&control, &shutdown).await
            }
        }
    };
    tokio::select! {
        ((), ()) = async { tokio::join!(streams, leases) } => {}
        () = tick(&control.subscription) => {}
        () = control.follow_cache() => {}
        () = control.local_kill.follow(&control.subscription) => {}
        () = control.follow_certificates() => {}
    }
    control.save_last().await;
    running.end();
    Flushed {
        unreported: control.unreported(),
    }
}

/// Returns the way to an aggregator at `HOST:PORT`, by the scheme that the protection needs.
pub(crate) fn dial(endpoint: &str, security: &Security) -> Result<Dial, InvalidEndpoint> {
    Dial::new(&format!("{}://{endpoint}", security.scheme()), security)
}

/// Ticks the subscription, whether there is a stream or not. Never ends.
async fn tick(subscription: &Shared<Subscription>) {
    let mut ticks = interval(parameters::REFILL);
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
mod tests;
