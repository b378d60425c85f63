//! Counters of events outside the brain: reloads of the policy, queries to Prometheus servers, rejected
//! streams.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_admin::metrics_page::{Page, flag, plain};
use plimsoll_admin::ports::Ports;
use plimsoll_admin::rejected_streams::RejectedStreams;

/// Counters of events outside the brain, since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    counts: Arc<Mutex<Counts>>,
    /// Rejected streams of children.
    pub(crate) rejected_streams: RejectedStreams,
    /// Connections of the ports.
    pub(crate) ports: Ports,
}

#[derive(Debug, Default)]
struct Counts {
    reloads: Results,
    last_reload_refused: bool,
    /// The time of the last reading of the policy files in seconds since 1970.
    policy_read_s: i64,
    limit_queries: Results,
    gate_queries: Results,
}

/// Counts of one kind of event by result.
#[derive(Debug, Default)]
struct Results {
    good: u64,
    bad: u64,
}

// === impl Events ===

impl Events {
    fn with<R>(&self, f: impl FnOnce(&mut Counts) -> R) -> R {
        f(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds the metrics of all events.
    pub(crate) fn add_to(&self, page: &mut Page) {
        self.rejected_streams.add_to(page);
        self.ports.add_to(page);
        self.with(|counts| {
            let help = "Changes of the policy files, by result.";
            counts.reloads.add_to(page, "plimsoll_policy_reloads_total", help, ["accepted", "refused"]);
            let help = "1 while the policy files were refused and an earlier policy is in force.";
            page.gauge("plimsoll_policy_refused", help, &[], plain(flag(counts.last_reload_refused)));
            let help = "When the policy files were last read, changed or not.";
            let read_s = plain(counts.policy_read_s as f64);
            page.gauge("plimsoll_policy_last_read_timestamp_seconds", help, &[], read_s);
            let results = ["answered", "failed"];
            let help = "Queries to Prometheus servers for limits, by result.";
            counts.limit_queries.add_to(page, "plimsoll_limit_queries_total", help, results);
            let help = "Queries to Prometheus servers for extra gates, by result.";
            counts.gate_queries.add_to(page, "plimsoll_rollout_queries_total", help, results);
        });
    }

    /// Counts a query for a limit.
    pub(crate) fn on_query(&self, answered: bool) {
        self.with(|counts| counts.limit_queries.count(answered));
    }

    /// Counts a query for an extra gate.
    pub(crate) fn on_gate_query(&self, answered: bool) {
        self.with(|counts| counts.gate_queries.count(answered));
    }

    /// Notes that the policy files were read at a time in seconds since 1970.
    pub(crate) fn on_policy_read(&self, unix_s: i64) {
        self.with(|counts| counts.policy_read_s = unix_s);
    }

    /// Counts a change of the policy files.
    pub(crate) fn on_reload(&self, accepted: bool) {
        self.with(|counts| {
            counts.last_reload_refused = !accepted;
            counts.reloads.count(accepted);
        });
    }
}

// === impl Results ===

impl Results {
    const fn count(&mut self, good: bool) {
        let count = if good { &mut self.good } else { &mut self.bad };
        *count += 1;
    }

    /// Adds a counter with the names of the good and of the bad result as labels.
    fn add_to(&self, page: &mut Page, name: &str, help: &str, [good, bad]: [&str; 2]) {
        let rows = [(good, self.good), (bad, self.bad)];
        let rows = rows.map(|(result, count)| (vec![result.to_owned()], count as f64));
        page.counter(name, help, &["result"], rows);
    }
}
