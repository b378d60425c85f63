//! A scenario: what is offered to which fleet under which policy, what breaks, and what is expected of it. One that
//! exists is valid throughout.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::bucket::{Bucket, Name, Tenant};
use plimsoll_core::law::Parameters;
use plimsoll_core::policy::{Document, FILE_BYTES_MAX, Policy, Source};

use crate::check;
use crate::error::ScenarioError;
use crate::expect::Expectation;
use crate::faults::Fault;
use crate::load::Load;
use crate::retry::Retry;
use crate::shares::{Share, zones_of};
use crate::spec::{Reference, ScenarioSpec};

/// A validated scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub(crate) name: String,
    /// What clients and aggregators say they belong to.
    pub(crate) service: Name,
    pub(crate) duration_s: f64,
    pub(crate) warmup_s: f64,
    pub(crate) zones: u32,
    /// Further aggregators, between those of the zones and the controller; none of them has clients.
    pub(crate) upper: u32,
    pub(crate) clients: u32,
    pub(crate) report: Duration,
    pub(crate) tick: Duration,
    pub(crate) network: Network,
    pub(crate) policy: Arc<Policy>,
    pub(crate) buckets: Vec<Protected>,
    pub(crate) traffic: Vec<Traffic>,
    pub(crate) joins: Vec<Join>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) align_rollups: bool,
    pub(crate) start: Option<Start>,
    pub(crate) reference: Option<Reference>,
    pub(crate) expectations: Vec<Expectation>,
}

/// What the links are like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Network {
    pub(crate) client_delay_s: f64,
    pub(crate) uplink_delay_s: f64,
    pub(crate) jitter_s: f64,
    pub(crate) report_loss: f64,
    pub(crate) directive_loss: f64,
}

/// A bucket that is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Protected {
    pub(crate) name: Bucket,
    /// In requests per second, where there is a number.
    pub(crate) limit: Option<f64>,
    /// On whose behalf, in the order of the scenario.
    pub(crate) tenants: Vec<Tenant>,
    /// Not every refusal is carried out, so those that are not must be counted apart.
    pub(crate) observes: bool,
}

/// One entry of `traffic`.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    /// Index into [`Scenario::buckets`].
    pub(crate) bucket: usize,
    /// Index into its tenants.
    pub(crate) tenant: usize,
    pub(crate) load: Load,
    pub(crate) shares: Vec<Share>,
    pub(crate) retry: Option<Retry>,
}

/// So many clients more from then on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Join {
    pub(crate) at_s: f64,
    pub(crate) clients: u32,
}

/// When the tiers start, if not long before the traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Start {
    pub(crate) controller_s: f64,
    pub(crate) zones_s: f64,
    pub(crate) clients_s: f64,
}

impl Scenario {
    /// Reads a scenario and the files it names, which are found beside it.
    ///
    /// # Errors
    /// When a file cannot be read or is not valid, with the place.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ScenarioError> {
        let path = path.as_ref();
        let bytes = bytes_of(path)?;
        let name = path.to_string_lossy();
        let source = Source::from_bytes(&name, &bytes)?;
        Self::parse(source, path.parent().unwrap_or(Path::new("")))
    }

    /// Reads a scenario from text. Files it names are looked for in `folder`.
    ///
    /// # Errors
    /// When it is not valid, or a file it names cannot be read.
    pub fn parse(source: Source<'_>, folder: &Path) -> Result<Self, ScenarioError> {
        let document = Document::open(source)?;
        let spec: ScenarioSpec = document.parse()?;
        check::scenario(spec, source, &document, folder)
    }

    /// The scenario with another tick of the controller, and the bounds that hold for that tick.
    #[must_use]
    pub fn with_tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How long it takes, in virtual time.
    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.duration_s)
    }

    /// How often the controller applies the law.
    #[must_use]
    pub const fn tick(&self) -> Duration {
        self.tick
    }

    /// How many clients there are once all have joined.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients as usize + self.joins.iter().map(|join| join.clients as usize).sum::<usize>()
    }

    /// All clients in their order: from when on each sends, in seconds, and its zone.
    pub(crate) fn members(&self) -> Vec<(f64, u32)> {
        let from = self.start.map_or(0.0, |start| start.clients_s);
        let together = |(at, clients): (f64, u32)| zones_of(clients, self.zones).map(move |zone| (at, zone));
        let joins = self.joins.iter().map(|join| (join.at_s, join.clients));
        std::iter::once((from, self.clients)).chain(joins).flat_map(together).collect()
    }

    /// How many aggregators there are: those of the zones, and then the upper ones.
    pub(crate) const fn aggregators(&self) -> u32 {
        self.zones + self.upper
    }

    /// The aggregator above an aggregator; `None` where that is the controller.
    pub(crate) fn above(&self, aggregator: u32) -> Option<u32> {
        let below = aggregator < self.zones && self.upper > 0;
        // In blocks, as clients are spread over zones.
        let at = u64::from(aggregator) * u64::from(self.upper) / u64::from(self.zones);
        below.then(|| self.zones + at as u32)
    }

    /// What the law is tuned by.
    pub(crate) fn parameters(&self) -> Parameters {
        Parameters { tick: self.tick, report_interval: self.report, ..Parameters::default() }
    }

    /// What the figures are taken over, in seconds.
    pub(crate) const fn window(&self) -> (f64, f64) {
        (self.warmup_s, self.duration_s)
    }
}

/// Reads a file that a scenario may be or name; one byte too many is read on purpose, to find out that it is too
/// large.
pub(crate) fn bytes_of(path: &Path) -> Result<Vec<u8>, ScenarioError> {
    bytes_up_to(path, FILE_BYTES_MAX)
}

/// The same for another bound.
pub(crate) fn bytes_up_to(path: &Path, bytes_max: usize) -> Result<Vec<u8>, ScenarioError> {
    let io = |source| ScenarioError::Io { path: PathBuf::from(path), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(io)?;
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(io)?;
    Ok(bytes)
}
