//! Counters of events outside the brain: reloads of the policy, queries to Prometheus servers, rejected
//! streams.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_admin::metrics_page::{Page, flag, plain};
use plimsoll_admin::rejected_streams::RejectedStreams;

/// Counters of events outside the brain, since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    counts: Arc<Mutex<Counts>>,
    /// Rejected streams of children.
    pub(crate) rejected_streams: RejectedStreams,
}

#[derive(Debug, Default)]
struct Counts {
    reloads_accepted: u64,
    reloads_refused: u64,
    last_reload_refused: bool,
    queries_answered: u64,
    queries_failed: u64,
    gate_queries_answered: u64,
    gate_queries_failed: u64,
}

impl Events {
    fn with<R>(&self, f: impl FnOnce(&mut Counts) -> R) -> R {
        f(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds the metrics of all events.
    pub(crate) fn add_to(&self, page: &mut Page) {
        self.rejected_streams.add_to(page);
        self.with(|counts| {
            counts.add_reloads_to(page);
            counts.add_queries_to(page);
        });
    }

    /// Counts a query for a limit.
    pub(crate) fn on_query(&self, answered: bool) {
        self.with(|counts| {
            let count = if answered { &mut counts.queries_answered } else { &mut counts.queries_failed };
            *count += 1;
        });
    }

    /// Counts a query for an extra gate.
    pub(crate) fn on_gate_query(&self, answered: bool) {
        self.with(|counts| {
            let count =
                if answered { &mut counts.gate_queries_answered } else { &mut counts.gate_queries_failed };
            *count += 1;
        });
    }

    /// Counts a change of the policy files.
    pub(crate) fn on_reload(&self, accepted: bool) {
        self.with(|counts| {
            counts.last_reload_refused = !accepted;
            let count = if accepted { &mut counts.reloads_accepted } else { &mut counts.reloads_refused };
            *count += 1;
        });
    }
}

impl Counts {
    fn add_queries_to(&self, page: &mut Page) {
        let rows = |answered: u64, failed: u64| {
            [("answered", answered), ("failed", failed)]
                .map(|(result, count)| (vec![result.to_owned()], count as f64))
        };
        page.counter(
            "plimsoll_limit_queries_total",
            "Queries to Prometheus servers for limits, by result.",
            &["result"],
            rows(self.queries_answered, self.queries_failed),
        );
        page.counter(
            "plimsoll_rollout_queries_total",
            "Queries to Prometheus servers for extra gates, by result.",
            &["result"],
            rows(self.gate_queries_answered, self.gate_queries_failed),
        );
    }

    fn add_reloads_to(&self, page: &mut Page) {
        let reloads = [("accepted", self.reloads_accepted), ("refused", self.reloads_refused)]
            .map(|(result, count)| (vec![result.to_owned()], count as f64));
        page.counter(
            "plimsoll_policy_reloads_total",
            "Changes of the policy files, by result.",
            &["result"],
            reloads,
        );
        page.gauge(
            "plimsoll_policy_refused",
            "1 while the policy files were refused and an earlier policy is in force.",
            &[],
            plain(flag(self.last_reload_refused)),
        );
    }
}
