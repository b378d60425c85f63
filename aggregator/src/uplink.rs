//! The way up to the controller, as logs and metrics see it.

use std::error::Error;

use plimsoll_proto::child::{Broken, Observer};

use crate::metrics::Events;

/// Logs the first failure and the return, not every attempt in between.
#[derive(Debug)]
pub(crate) struct Log {
    events: Events,
    quiet: bool,
}

impl Log {
    pub(crate) const fn new(events: Events) -> Self {
        Self { events, quiet: false }
    }
}

impl Observer for Log {
    fn on_connected(&mut self) {
        self.events.on_uplink_connected();
        self.quiet = false;
        tracing::info!("connected to the controller");
    }

    fn on_disconnected(&mut self, why: &Broken, was_connected: bool) {
        self.events.on_uplink_broken(was_connected, matches!(why, Broken::Invalid(_)));
        if was_connected {
            tracing::warn!(%why, "lost the controller; the zone goes on with what it holds");
        } else if self.quiet {
            tracing::debug!(%why, "still without the controller");
        } else {
            tracing::warn!(%why, "cannot reach the controller; the zone goes on with what it holds");
        }
        self.quiet = true;
    }

    fn on_refused(&mut self, why: &dyn Error) {
        tracing::debug!(%why, "a directive was refused; what was held stays");
    }
}
