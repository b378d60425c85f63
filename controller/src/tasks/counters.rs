//! Counters of what happens outside the brain: reloads of the policy, queries to Prometheus servers, rejected
//! streams. The latest choice of the metrics page.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_admin::ports::Ports;
use plimsoll_admin::rejected_streams::RejectedStreams;
use plimsoll_core::stats::metrics::{Series, rows};

use crate::admin::metrics::Shown;

#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    counts: Arc<Mutex<Counts>>,
    pub(crate) rejected_streams: RejectedStreams,
    pub(crate) ports: Ports,
    /// The tenants on the last page of metrics.
    pub(crate) shown_tenants: Arc<Mutex<Shown>>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) reloads: Results,
    pub(crate) last_reload_refused: bool,
    /// The time of the last reading of the policy files in seconds since 1970.
    pub(crate) policy_read_s: i64,
    pub(crate) limit_queries: Results,
    pub(crate) gate_queries: Results,
    /// Events that a receiver did not take and that were given up, counted for each receiver.
    pub(crate) events_unsent: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Results {
    good: u64,
    bad: u64,
}

// === impl Counters ===

impl Counters {
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Counts) -> R) -> R {
        f(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Results ===

impl Results {
    pub(crate) const fn count(&mut self, good: bool) {
        let count = if good { &mut self.good } else { &mut self.bad };
        *count += 1;
    }

    pub(crate) fn named(self, [good, bad]: [&'static str; 2]) -> Vec<Series> {
        rows([([good], self.good), ([bad], self.bad)])
    }
}
