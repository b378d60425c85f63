//! The health of the feed: counters for metrics, and the log of connections.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use plimsoll_proto::driver::child::{Observer, StreamError};

use crate::cache::Restored;

/// Counters of the feed, exported as metrics.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// The zone that this service names.
    pub(crate) zone: String,
    /// True after an aggregator of another zone was logged.
    pub(crate) is_foreign: AtomicBool,
    /// The number of streams connected now.
    pub(crate) connected: AtomicU64,
    pub(crate) disconnects: AtomicU64,
    /// Messages that could not be decoded.
    pub(crate) invalid: AtomicU64,
    /// The result of restoring saved directives at the start.
    pub(crate) restored: Restored,
    pub(crate) save_failures: AtomicU64,
    pub(crate) resolve_failures: AtomicU64,
}

/// Counts and logs the state of one connection: the first failure and the return as warning and info, the
/// attempts in between at debug level.
pub(super) struct StreamLog {
    health: Arc<Health>,
    is_connected: bool,
    has_warned: bool,
}

impl StreamLog {
    pub(super) const fn new(health: Arc<Health>) -> Self {
        Self { health, is_connected: false, has_warned: false }
    }

    fn close(&mut self) {
        if std::mem::take(&mut self.is_connected) {
            self.health.connected.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Observer for StreamLog {
    fn on_connected(&mut self, zone: Option<&str>) {
        self.health.connected.fetch_add(1, Ordering::Relaxed);
        self.is_connected = true;
        self.has_warned = false;
        tracing::info!("aggregator connected");
        if let Some(zone) = zone.filter(|zone| *zone != self.health.zone)
            && !self.health.is_foreign.swap(true, Ordering::Relaxed)
        {
            tracing::error!(
                zone = self.health.zone,
                aggregator_zone = zone,
                "this service names another zone than its aggregator, and shares the limits of the aggregator's zone: set the \
                 zone of the limiter, or connect it to an aggregator of its zone"
            );
        }
    }

    fn on_disconnected(&mut self, error: &StreamError, was_connected: bool) {
        self.close();
        self.health.disconnects.fetch_add(u64::from(was_connected), Ordering::Relaxed);
        let is_invalid = matches!(error, StreamError::Decode(_));
        self.health.invalid.fetch_add(u64::from(is_invalid), Ordering::Relaxed);
        if was_connected {
            tracing::warn!(%error, "aggregator lost; the directives held stay in force");
        } else if self.has_warned {
            tracing::debug!(%error, "aggregator still unreachable");
        } else {
            tracing::warn!(%error, "aggregator unreachable; the directives held stay in force");
        }
        self.has_warned = true;
    }

    fn on_rejected(&mut self, error: &dyn Error) {
        tracing::debug!(%error, "directives rejected; those held stay in force");
    }
}

impl Drop for StreamLog {
    /// Counts the end of a stream that was closed in good order.
    fn drop(&mut self) {
        self.close();
    }
}
