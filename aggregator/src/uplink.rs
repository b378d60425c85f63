//! Logs and metrics of the stream to the parent.

use std::error::Error;

use plimsoll_proto::driver::child::{Observer, StreamError};

use crate::admin::metrics::Events;

/// Maximum number of reasons that are logged until the reconnection.
const REASONS_MAX: usize = 8;

/// Logs each reason of a failure once until the reconnection, which is logged, too. Other attempts are logged at the
/// level debug.
#[derive(Debug)]
pub(crate) struct Log {
    events: Events,
    /// Host and port of the parent that the calls are about.
    parent: String,
    /// Reasons logged since the latest connection.
    logged: Vec<String>,
}

impl Log {
    pub(crate) const fn new(events: Events) -> Self {
        Self {
            events,
            parent: String::new(),
            logged: Vec::new(),
        }
    }
}

impl Observer for Log {
    fn on_parent(&mut self, authority: &str) {
        authority.clone_into(&mut self.parent);
    }

    fn on_connected(&mut self, _zone: Option<&str>) {
        self.events.on_uplink_connected(&self.parent);
        self.logged.clear();
        tracing::info!(parent = self.parent, "connected to the parent");
    }

    fn on_renewed(&mut self) {
        self.events.on_uplink_connected(&self.parent);
        tracing::info!(
            parent = self.parent,
            "stream to the parent continued with a renewed certificate, or to a later leader"
        );
    }

    fn on_disconnected(&mut self, why: &StreamError, was_connected: bool) {
        self.events
            .on_uplink_broken(was_connected, matches!(why, StreamError::Decode(_)));
        let parent = &*self.parent;
        // The text of a refusal may name a time that passes.
        let reason = why.refusal().map_or_else(|| why.to_string(), str::to_owned);
        if was_connected {
            tracing::warn!(parent, %why, "lost the parent; the zone keeps the directives it has");
        } else if self.logged.contains(&reason) || self.logged.len() >= REASONS_MAX {
            tracing::debug!(parent, %why, "still cannot reach the parent");
            return;
        } else {
            tracing::warn!(parent, %why, "cannot reach the parent; the zone keeps the directives it has");
        }
        self.logged.push(reason);
    }

    fn on_rejected(&mut self, why: &dyn Error) {
        tracing::debug!(%why, "rejected directives of the parent; those in force stay");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_admin::ports::Ports;

    use super::*;

    #[test]
    fn alternating_reasons_are_logged_once_each() {
        let mut log = Log::new(Events::new(Ports::default()));
        let silent = |s| StreamError::Silent(Duration::from_secs(s));
        for _ in 0..3 {
            log.on_disconnected(&StreamError::Ended, false);
            log.on_disconnected(&silent(1), false);
        }
        assert_eq!(
            log.logged,
            [StreamError::Ended.to_string(), silent(1).to_string()]
        );
        (0..100).for_each(|s| log.on_disconnected(&silent(s), false));
        assert_eq!(log.logged.len(), REASONS_MAX);
        log.on_connected(None);
        assert!(log.logged.is_empty());
    }
}
