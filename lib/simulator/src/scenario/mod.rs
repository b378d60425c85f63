//! A scenario: the fleet, its policy, the traffic, the faults and the expectations. A `Scenario` value is
//! always valid.

mod bounds;
mod changes;
mod check;
mod expect;
mod faults;
mod inline;
mod loads;
mod spec;
mod trace_file;
mod variants;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::law::Parameters;
use plimsoll_core::names::{Bucket, Name, Tenant};
use plimsoll_host::regular_file;
use plimsoll_policy::{FILE_BYTES_MAX, Number, Policy, Source};
use serde::Deserialize;

use crate::error::ScenarioError;
use crate::results::BIN_S;
use crate::traffic::{Groups, Load, Names, Retry, Share, zones_of};

pub(crate) use changes::Change;
pub(crate) use expect::{
    Expectation, SMALL_TENANT_DROPS, TENANT_DEVIATION, TENANT_DROPS, TENANT_LOST, of_names,
    of_tenant,
};
pub(crate) use faults::{Fault, FaultKind};

/// Validated scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub(crate) name: String,
    /// Service that clients and aggregators report.
    pub(crate) service: Name,
    pub(crate) duration_s: f64,
    pub(crate) warmup_s: f64,
    pub(crate) zones: u32,
    /// Aggregators between the zones' aggregators and the controller; none of them has clients.
    pub(crate) upper: u32,
    /// Clients at the start; `joins` has the others.
    pub(crate) clients: u32,
    /// Interval of the clients' reports.
    pub(crate) report: Duration,
    /// Interval of the controller's ticks.
    pub(crate) tick: Duration,
    pub(crate) network: Network,
    pub(crate) policy: Arc<Policy>,
    pub(crate) buckets: Vec<TargetBucket>,
    pub(crate) traffic: Vec<Traffic>,
    pub(crate) joins: Vec<Join>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) changes: Vec<Change>,
    pub(crate) pace: Pace,
    /// True if aggregators report at whole intervals from time zero, all at the same moment.
    pub(crate) align_rollups: bool,
    /// `None` if all tiers are up and settled at time zero.
    pub(crate) start: Option<Start>,
    pub(crate) expectations: Vec<Expectation>,
}

/// Delays of one direction, and losses as probabilities, on every link.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Network {
    pub(crate) client_delay_ms: Number,
    pub(crate) uplink_delay_ms: Number,
    pub(crate) jitter_ms: Number,
    pub(crate) report_loss: Number,
    pub(crate) directive_loss: Number,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            client_delay_ms: Number(1.0),
            uplink_delay_ms: Number(10.0),
            jitter_ms: Number(2.0),
            report_loss: Number(0.0),
            directive_loss: Number(0.0),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct TargetBucket {
    pub(crate) name: Bucket,
    /// Requests/s at the start; `None` if the limit is not a number.
    pub(crate) limit: Option<f64>,
    /// Tenants with traffic, in the order of the scenario.
    pub(crate) tenants: Vec<Tenant>,
    /// By tenant: the number of names with separate counts; 0 without names, or if they are too many.
    pub(crate) names: Vec<usize>,
}

/// One entry of `traffic`.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    /// Index into [`Scenario::buckets`].
    pub(crate) bucket: usize,
    /// Index into its tenants.
    pub(crate) tenant: usize,
    /// Names that requests use in place of the tenant's: `TENANT-0` and so on.
    pub(crate) names: Option<Names>,
    /// Number of requests that each request counts as.
    pub(crate) cost: u32,
    /// Zones of the sending clients; all if empty.
    pub(crate) zones: Vec<u32>,
    pub(crate) callers: Option<WaitingCallers>,
    pub(crate) load: Load,
    pub(crate) shares: Vec<Share>,
    pub(crate) groups: Option<Groups>,
    pub(crate) retry: Option<Retry>,
}

/// A bound on the requests of an entry that wait for an answer at one client. Arrivals beyond it are not sent.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitingCallers {
    pub(crate) in_flight: u32,
    /// Time from the admission of a request to its answer. A refusal is answered immediately.
    pub(crate) latency_s: Number,
}

/// Seconds of the clocks of processes in a second, by number; 1 where absent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Pace {
    pub(crate) controller: Option<Number>,
    pub(crate) zones: Vec<Number>,
    pub(crate) clients: Vec<Number>,
}

/// A number of clients that join at `at_s`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Join {
    pub(crate) at_s: Number,
    pub(crate) clients: u32,
}

/// Start times of the tiers in the run, which then has no settling phase.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Start {
    pub(crate) controller_s: Number,
    pub(crate) zones_s: Number,
    pub(crate) clients_s: Number,
}

impl Traffic {
    pub(crate) fn is_sent_from(&self, zone: u32) -> bool {
        self.zones.is_empty() || self.zones.contains(&zone)
    }
}

impl WaitingCallers {
    /// Returns the steps from the admission of a request to its answer.
    pub(crate) fn steps(self) -> usize {
        ((self.latency_s.0 / BIN_S).round() as usize).max(1)
    }
}

impl Pace {
    pub(crate) fn controller(&self) -> f64 {
        self.controller.map_or(1.0, |pace| pace.0)
    }

    pub(crate) fn zone(&self, zone: u32) -> f64 {
        pace_of(&self.zones, zone)
    }

    pub(crate) fn client(&self, client: u32) -> f64 {
        pace_of(&self.clients, client)
    }
}

fn pace_of(paces: &[Number], number: u32) -> f64 {
    paces.get(number as usize).map_or(1.0, |pace| pace.0)
}

impl Scenario {
    /// Reads a scenario, or each variant of it, and its files, with paths relative to it.
    ///
    /// # Errors
    /// If a file cannot be read or is not valid, with the place.
    pub fn read(path: impl AsRef<Path>) -> Result<Vec<Self>, ScenarioError> {
        let path = path.as_ref();
        let bytes = bytes_of(path)?;
        let name = path.to_string_lossy();
        let source = Source::from_bytes(&name, &bytes)?;
        Self::parse(source, path.parent().unwrap_or(Path::new("")))
    }

    /// Reads a scenario, or each variant of it, from text. Paths of its files are relative to
    /// `folder`.
    ///
    /// # Errors
    /// If it is not valid, or one of its files cannot be read.
    pub fn parse(source: Source<'_>, folder: &Path) -> Result<Vec<Self>, ScenarioError> {
        variants::read(source, folder)
    }

    /// Returns the scenario with another tick of the controller, judged by the expectations for
    /// that tick.
    #[must_use]
    pub fn with_tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Returns the name, for a variant `scenario/variant`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the duration in virtual time.
    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.duration_s)
    }

    /// Returns the number of clients after all joins.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients as usize
            + self
                .joins
                .iter()
                .map(|join| join.clients as usize)
                .sum::<usize>()
    }

    /// Returns the policy at `t` seconds.
    pub(crate) fn policy_at(&self, t: f64) -> &Arc<Policy> {
        // Times of the run are rounded to microseconds.
        let after = self
            .changes
            .partition_point(|change| change.at_s <= t + 1e-6);
        self.changes[..after]
            .last()
            .map_or(&self.policy, |change| &change.policy)
    }

    /// Returns the buckets with a changed limit in `step`, and the limits.
    pub(crate) fn limits_from(&self, step: usize) -> impl Iterator<Item = (usize, f64)> {
        let changes = self.changes.iter();
        changes
            .filter(move |change| (change.at_s / BIN_S).round() as usize == step)
            .filter_map(|change| change.limit)
    }

    /// Returns the limit of a bucket at `t` seconds, if it is a number.
    pub(crate) fn limit_at(&self, bucket: usize, t: f64) -> Option<f64> {
        let limits = self
            .changes
            .iter()
            .filter(|change| change.at_s <= t)
            .filter_map(|change| change.limit);
        let last = limits.rev().find(|(changed, _)| *changed == bucket);
        last.map(|(_, limit)| limit).or(self.buckets[bucket].limit)
    }

    /// Returns when each client starts to send, in seconds, and its zone.
    pub(crate) fn members(&self) -> Vec<(f64, u32)> {
        let from = self.start.unwrap_or_default().clients_s.0;
        let group =
            |(at, clients): (f64, u32)| zones_of(clients, self.zones).map(move |zone| (at, zone));
        let joins = self.joins.iter().map(|join| (join.at_s.0, join.clients));
        std::iter::once((from, self.clients))
            .chain(joins)
            .flat_map(group)
            .collect()
    }

    /// Returns the number of aggregators: the zones' first, then the upper ones.
    pub(crate) const fn aggregators(&self) -> u32 {
        self.zones + self.upper
    }

    /// Returns the aggregator above an aggregator, or `None` if its parent is the controller.
    pub(crate) fn above(&self, aggregator: u32) -> Option<u32> {
        let below = aggregator < self.zones && self.upper > 0;
        // Divided in blocks, as clients are divided between zones.
        let at = u64::from(aggregator) * u64::from(self.upper) / u64::from(self.zones);
        below.then(|| self.zones + at as u32)
    }

    pub(crate) fn parameters(&self) -> Parameters {
        Parameters {
            tick: self.tick,
            report_interval: self.report,
            ..Parameters::default()
        }
    }

    /// Returns the span that the figures cover, in seconds.
    pub(crate) const fn window(&self) -> (f64, f64) {
        (self.warmup_s, self.duration_s)
    }
}

pub(crate) fn bytes_of(path: &Path) -> Result<Vec<u8>, ScenarioError> {
    bytes_up_to(path, FILE_BYTES_MAX)
}

/// Reads at most one byte more than `bytes_max`; the extra byte shows that a file is too large.
pub(crate) fn bytes_up_to(path: &Path, bytes_max: usize) -> Result<Vec<u8>, ScenarioError> {
    regular_file::read(path, bytes_max).map_err(|source| ScenarioError::Io {
        path: PathBuf::from(path),
        source,
    })
}
