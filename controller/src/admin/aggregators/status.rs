//! The status of each aggregator.

use plimsoll_core::quantity::MonoTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::aggregators::AggregatorKey;
use crate::brain::Brain;

/// One aggregator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AggregatorStatus {
    /// Its zone.
    pub zone: String,
    /// Its stable name.
    pub name: String,
    /// Its version of Plimsoll; null of one that has not named it to this controller.
    pub version: Option<String>,
    /// True while it has a stream.
    pub connected: bool,
    /// Connected clients below it that a kill file stops from refusing.
    pub killed_locally: u32,
    /// Requests that this process reported and its clients cannot have decided, which were not counted.
    pub counts_cut: u64,
    /// Seconds since the first report of this process; 0 without a session: it has not reported since the start of
    /// this controller, or has been away for long.
    pub since_s: f64,
    /// Seconds since its last report; since the start of this controller, if it has not reported to it.
    pub last_report_s: f64,
    /// Seconds since its last report, while others reported; of an expired one, since its last report.
    pub silent_s: f64,
    /// The share of its parts of limits that is divided among the others, from 0 to 1; 0 again once it has expired.
    pub released: f64,
    /// True without a report for so long that buckets in canary return to shadow, and of an expired one.
    pub stale: bool,
    /// True if it went silent until its share was released. It stays listed until it returns, is
    /// forgotten, or has been away for 7 days.
    pub expired: bool,
    /// True while two processes with this zone and name replace each other.
    pub name_conflict: bool,
}

impl AggregatorStatus {
    pub(crate) fn list(brain: &Brain, now: MonoTime) -> Vec<Self> {
        let (durable, stale) = (brain.durable(), brain.stale_aggregators());
        let status = |place: &AggregatorKey| {
            let mut sessions = brain.downstream.sessions.iter();
            let child = sessions
                .find(|child| child.identity.zone == place.0 && child.identity.name == place.1);
            let registered = brain.downstream.aggregators.get(place);
            let expired = durable.expired.iter().find(|expired| expired.is_at(place));
            let last_report = expired.map(|expired| expired.age_s(brain.unix_s()) as f64);
            let last_report_s = last_report.unwrap_or_else(|| brain.silence(place).as_secs_f64());
            AggregatorStatus {
                zone: place.0.to_string(),
                name: place.1.to_string(),
                version: child
                    .and_then(|child| child.version.as_ref())
                    .map(ToString::to_string),
                connected: child.is_some_and(|child| child.stream.is_some()),
                killed_locally: child
                    .filter(|child| child.stream.is_some())
                    .map_or(0, |child| child.clients.killed_locally),
                counts_cut: child.map_or(0, |child| child.cut),
                since_s: child.map_or(0.0, |child| now.since(child.since).as_secs_f64()),
                last_report_s,
                silent_s: registered.map_or(last_report_s, |aggregator| {
                    aggregator.silent_for.as_secs_f64()
                }),
                released: registered.map_or(0.0, |aggregator| 1.0 - aggregator.presence()),
                stale: stale.contains(place),
                expired: expired.is_some(),
                name_conflict: registered
                    .is_some_and(|aggregator| brain.has_name_conflict(aggregator)),
            }
        };
        brain.known_aggregators().iter().map(status).collect()
    }
}
