//! The zone: merges what its children report, rolls it up, and passes directives down. Pure: parent to its clients and
//! to aggregators below it, child of the controller or of an aggregator above it, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plimsoll_core::names::{Bucket, Key};
use plimsoll_core::directive::{Board, Directives, Epoch, Message, Sequence, StaleDirective};
use plimsoll_core::kill::drill::{Drill, Timing};
use plimsoll_core::exchange::{Child, Parent, StreamId, StreamRejected};
use plimsoll_core::kill::{Kills, Scope};
use plimsoll_core::law::Parameters;
use plimsoll_core::quantity::Rate;
use plimsoll_core::exchange::Path;
use plimsoll_core::report::{Batches, Counts, Echo, Evidence, Identity, InstanceId, Outbox, Report, Role, STANDS_MAX};
use plimsoll_core::exchange::sessions::{Head, Sessions};
use plimsoll_core::quantity::MonoTime;

use crate::key_counts::KeyCounts;
use crate::downstream::Below;
use crate::schedule::report_interval::{ReportInterval, Load};
use crate::fast_loop::{FastLoop, Moment};
use crate::schedule::push_schedule::PushSchedule;
use crate::warmup::Warmup;
use crate::rollups::Rollups;
use crate::upstream::Upstream;

use ingest::Arrived;

/// A report that covers at least this much says how many requests there were, not how fast they come.
const LATE: Duration = Duration::from_millis(1_500);
/// The same in report intervals; the longer of the two holds.
const LATE_INTERVALS: u32 = 3;
/// How long a client whose stream has closed still counts as one that shares the guard.
const COUNTS_ON: Duration = Duration::from_millis(1_500);

/// What a zone holds at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Clients, those who are away but remembered included.
    pub children_max: usize,
    /// Keys that one client may define.
    pub keys_per_child_max: usize,
    /// Keys told apart; tenants beyond it count as their bucket's default class.
    pub keys_max: usize,
    /// The same in one bucket, its default class among them.
    pub tenants_per_bucket_max: usize,
    /// Buckets asked for by clients.
    pub buckets_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            children_max: 20_000,
            keys_per_child_max: 100_000,
            keys_max: 1_000_000,
            tenants_per_bucket_max: crate::TENANTS_PER_BUCKET_MAX as usize,
            buckets_max: 10_000,
        }
    }
}

/// What happened in a zone that nobody should have to guess.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Requests that came too late to say anything about the present rate.
    pub late: u64,
    /// Requests given up because nobody can tell whether they were counted before.
    pub unconfirmed: u64,
    /// Keys for which there was no room at all.
    pub homeless: u64,
    /// Messages of the controller that were older than what is held.
    pub stale: u64,
}

/// An order to kill that the controller may not know of.
#[derive(Clone, Copy, Debug)]
struct Ordered {
    /// It holds; else it has ended since, and whoever knows nothing of it has not decided what comes after it.
    killed: bool,
    /// The first report of the present stream that told of it.
    told: Option<u64>,
}

/// One aggregator's state.
#[derive(Debug)]
pub struct Zone {
    identity: Identity,
    bounds: Bounds,
    parameters: Parameters,
    accounts: KeyCounts,
    roster: Sessions,
    flows: FastLoop,
    /// Empty but while a report is entered.
    arrived: Arrived,
    /// What clients are told.
    told: Board,
    pushes: PushSchedule,
    cadence: ReportInterval,
    load: Load,
    quiet: Warmup,
    /// The aggregators among the children, and when what may pass was last divided between them and the clients.
    below: Below,
    shared: Option<(MonoTime, bool)>,
    figures: Figures,
    // What the controller said, and what was said to it.
    board: Board,
    order: Sequence,
    /// The highest epoch a client claims to have heard: a controller that lost its state must learn of it.
    epoch_below: Option<Epoch>,
    kills: Kills,
    /// The version of them that was told on the present stream.
    kills_told: u64,
    /// What was ordered killed here and is not known to have reached the controller.
    ordered: BTreeMap<Scope, Ordered>,
    /// How the clients hear of the latest drill, what of it was told on the present stream, and the drill that was told.
    timing: Timing,
    timing_told: u64,
    drill_told: Drill,
    policy_hash: Option<u64>,
    upstream: Upstream,
    outbox: Outbox,
    rollups: Rollups,
    greeted: bool,
    asked: BTreeSet<Bucket>,
    unasked: Vec<Bucket>,
    /// What gates judge by, since the last roll-up.
    evidence: Evidence,
}

impl Zone {
    /// A zone that has heard nobody yet.
    #[must_use]
    pub fn new(identity: Identity, bounds: Bounds, parameters: Parameters) -> Self {
        Self {
            flows: FastLoop::new(parameters),
            arrived: Arrived::default(),
            told: Board::default(),
            pushes: PushSchedule::default(),
            cadence: ReportInterval::default(),
            load: Load::default(),
            parameters,
            roster: Sessions::new(identity.instance, bounds.children_max, bounds.keys_per_child_max)
                .with_keys_of_aggregators(bounds.keys_max),
            accounts: KeyCounts::new(identity.instance.0, &bounds),
            identity,
            bounds,
            quiet: Warmup::default(),
            below: Below::default(),
            shared: None,
            figures: Figures::default(),
            board: Board::default(),
            order: Sequence::default(),
            epoch_below: None,
            kills: Kills::default(),
            kills_told: 0,
            ordered: BTreeMap::new(),
            timing: Timing::default(),
            timing_told: 0,
            drill_told: Drill::default(),
            policy_hash: None,
            upstream: Upstream::default(),
            outbox: Outbox::default(),
            rollups: Rollups::default(),
            greeted: false,
            asked: BTreeSet::new(),
            unasked: Vec::new(),
            evidence: Evidence::default(),
        }
    }

    /// Time passes: to be called about every [period of the fast loop](Parameters::fast_period). True when clients have
    /// something new to hear.
    pub fn on_tick(&mut self, now: MonoTime) -> bool {
        self.roster.prune(now);
        self.below.prune(now);
        let have_shown = self.below.have_shown(now, &self.parameters);
        let quiet_ends = self.quiet.on_tick(now, self.children(), have_shown);
        if quiet_ends {
            self.roster.iter_mut().for_each(plimsoll_core::exchange::sessions::Child::forget_told);
            self.shared = None;
        }
        for gone in self.accounts.on_tick(now, self.parameters.fast_period, &mut self.outbox) {
            if let Some(key) = self.accounts.keys().get(gone.index()) {
                self.flows.withdraw(gone, key);
            }
        }
        self.flows.on_tick(now);
        if self.pushes.is_due(now, self.parameters.report_interval, self.parameters.fast_period) {
            self.direct(now, false);
        }
        self.has_news() || quiet_ends
    }

    /// How busy the aggregator was of late: clients shall report as often as it can bear, and hear as often what the fast
    /// loop has found. What the controller decides passes at once all the same.
    pub fn on_load(&mut self, load: Load) {
        self.load = load;
        self.parameters.report_interval = self.cadence.on_load(load);
    }

    /// How busy the aggregator was when it last looked.
    #[must_use]
    pub const fn load(&self) -> Load {
        self.load
    }

    /// How often clients are asked to report; the zone itself rolls up once a tick.
    #[must_use]
    pub const fn interval_of_clients(&self) -> Duration {
        self.parameters.report_interval
    }

    fn head(&self) -> Head {
        Head {
            epoch: self.order.epoch(),
            policy_hash: self.policy_hash,
            report_interval: Some(self.parameters.report_interval),
            ..Head::of(&self.kills)
        }
    }

    /// Works out what clients are to be told, and aggregators below where that is due, or something new came from `above`.
    fn direct(&mut self, now: MonoTime, above: bool) {
        let clients = self.sharing(now);
        self.pushes.on_direct(now, clients);
        let moment =
            Moment { now, led: self.is_led(now), clients: u32::try_from(clients).unwrap_or(u32::MAX) };
        if self.share(moment) || above {
            self.direct_below(moment);
        }
        for (bucket, posted) in self.board.iter() {
            let mut directive = self.flows.directive(bucket, posted, moment);
            directive.terms.mode = self.mode(bucket, posted.terms());
            self.told.apply(&directive);
        }
    }

    /// Clients that share the guard.
    fn sharing(&self, now: MonoTime) -> usize {
        let children = self.roster.connected_count() + self.roster.left_within(now, COUNTS_ON);
        children.saturating_sub(self.below.within(now, COUNTS_ON))
    }

    /// Whether the controller confirms what it is told.
    fn is_led(&self, now: MonoTime) -> bool {
        self.upstream.is_led(now, &self.parameters)
    }

    /// Whether the zone lives on its own part of a bucket's limit because no controller leads.
    #[must_use]
    pub fn is_on_hold(&self, bucket: &Bucket, now: MonoTime) -> bool {
        self.flows.is_on_hold(bucket, self.is_led(now))
    }

    /// The zone's name.
    #[must_use]
    pub const fn name(&self) -> &plimsoll_core::names::Zone {
        &self.identity.zone
    }

    /// Who is connected, and who is remembered.
    #[must_use]
    pub const fn roster(&self) -> &Sessions {
        &self.roster
    }

    /// What happened that nobody should have to guess.
    #[must_use]
    pub const fn figures(&self) -> Figures {
        self.figures
    }

    /// How many keys are told apart.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.accounts.len()
    }

    /// Every key and its cumulative counts.
    pub fn counts(&self) -> impl Iterator<Item = (&Key, Counts)> {
        self.accounts.iter()
    }

    /// Whether a restart is being waited out.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.quiet.holds_back()
    }

    /// The directives in force.
    #[must_use]
    pub const fn board(&self) -> &Board {
        &self.board
    }

    /// Whether a client has asked for a bucket, or a controller has spoken of it.
    #[must_use]
    pub fn knows(&self, bucket: &Bucket) -> bool {
        self.asked.contains(bucket) || self.board.get(bucket).is_some()
    }

    /// The highest epoch applied.
    #[must_use]
    pub const fn epoch(&self) -> Option<Epoch> {
        self.order.epoch()
    }

    /// The kill generations held.
    #[must_use]
    pub const fn kills(&self) -> &Kills {
        &self.kills
    }

    /// How long ago the controller last covered a roll-up, all hops' waits included; `None` if it never did.
    #[must_use]
    pub fn upstream_age(&self, now: MonoTime) -> Option<Duration> {
        self.upstream.age(now)
    }

    /// Clients with a stream.
    fn children(&self) -> u32 {
        u32::try_from(self.roster.connected_count()).unwrap_or(u32::MAX)
    }

    /// The parts of limits that the zone holds, from whichever controller.
    fn holds(&self) -> BTreeMap<Bucket, Rate> {
        let each =
            self.board.iter().filter_map(|(bucket, posted)| Some((bucket.clone(), posted.terms().hold?)));
        each.collect()
    }
}

mod downstream;
mod child;
mod ingest;
mod kill;
mod parent;
#[cfg(test)]
mod tests;
