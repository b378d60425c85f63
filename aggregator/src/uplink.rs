//! Logs and metrics of the stream to the parent.

use std::error::Error;

use plimsoll_proto::driver::child::{Observer, StreamError};

use crate::admin::metrics::Events;

/// Logs the first failure, every change of its reason, and the reconnection. Repeated attempts with the same
/// failure are logged at the level debug.
#[derive(Debug)]
pub(crate) struct Log {
    events: Events,
    /// The reason of the latest failure; `None` while connected.
    logged: Option<String>,
}

impl Log {
    pub(crate) const fn new(events: Events) -> Self {
        Self { events, logged: None }
    }
}

impl Observer for Log {
    fn on_connected(&mut self, _zone: Option<&str>) {
        self.events.on_uplink_connected();
        self.logged = None;
        tracing::info!("connected to the parent");
    }

    fn on_renewed(&mut self) {
        tracing::info!("stream to the parent continued with the renewed certificate");
    }

    fn on_disconnected(&mut self, why: &StreamError, was_connected: bool) {
        self.events.on_uplink_broken(was_connected, matches!(why, StreamError::Decode(_)));
        // The text of a refusal may name a time that passes.
        let reason = why.refusal().map_or_else(|| why.to_string(), str::to_owned);
        if was_connected {
            tracing::warn!(%why, "lost the parent; the zone keeps the directives it has");
        } else if self.logged.as_ref() == Some(&reason) {
            tracing::debug!(%why, "still cannot reach the parent");
        } else {
            tracing::warn!(%why, "cannot reach the parent; the zone keeps the directives it has");
        }
        self.logged = Some(reason);
    }

    fn on_rejected(&mut self, why: &dyn Error) {
        tracing::debug!(%why, "rejected directives of the parent; those in force stay");
    }
}
