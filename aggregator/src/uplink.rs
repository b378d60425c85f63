//! The way up to the controller, or to an aggregator that leads to it, as logs and metrics see it.

use std::error::Error;

use plimsoll_proto::child::{Broken, Observer};

use crate::admin::metrics::Events;

/// Logs the first failure, each other reason, and the return, not every attempt in between.
#[derive(Debug)]
pub(crate) struct Log {
    events: Events,
    /// Why the last attempt failed, if it was said.
    said: Option<String>,
}

impl Log {
    pub(crate) const fn new(events: Events) -> Self {
        Self { events, said: None }
    }
}

impl Observer for Log {
    fn on_connected(&mut self) {
        self.events.on_uplink_connected();
        self.said = None;
        tracing::info!("connected to the parent");
    }

    fn on_disconnected(&mut self, why: &Broken, was_connected: bool) {
        self.events.on_uplink_broken(was_connected, matches!(why, Broken::Invalid(_)));
        let reason = why.to_string();
        if was_connected {
            tracing::warn!(%why, "lost the parent; the zone goes on with what it holds");
        } else if self.said.as_ref() == Some(&reason) {
            tracing::debug!(%why, "still without the parent");
        } else {
            tracing::warn!(%why, "cannot reach the parent; the zone goes on with what it holds");
        }
        self.said = Some(reason);
    }

    fn on_refused(&mut self, why: &dyn Error) {
        tracing::debug!(%why, "a directive was refused; what was held stays");
    }
}
