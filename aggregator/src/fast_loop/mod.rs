//! The fast loop: what flows through the zone by key, and the directives for its clients that follow from that and from
//! what the controller gave the zone. Pure.

mod aggregator_directives;
mod client_directives;
pub(crate) mod key_rates;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use plimsoll_core::names::{Bucket, DEFAULT_TENANT, Key, KeyId, Tenant};
use plimsoll_core::directive::{Board, BucketDirective, Posted};
use plimsoll_core::law::{Division, Parameters, SLACK_PERIOD};
use plimsoll_core::report::Counts;
use plimsoll_core::quantity::MonoTime;

use crate::downstream::{Parts, Traffic};
use crate::fast_loop::key_rates::{Arriving, KeyRates};

/// Bins of time end this much before the loop looks at them, so that a tick that comes a little late does not put
/// every later one before the end of its bin, and all rates a whole bin behind.
const GRID_SLACK: Duration = Duration::from_millis(5);

/// Lanes for keys without a directive of their own: so many are followed from their first request on, so that the one
/// that is given a directive has its past. Of others it begins with the directive.
const LANES_SPARE: usize = 4_096;
/// Stands for no lane.
const NONE: u32 = u32::MAX;

/// The traffic of all keys.
#[derive(Debug)]
pub(crate) struct FastLoop {
    parameters: Parameters,
    /// By key id.
    ways: Vec<Way>,
    lanes: Vec<KeyRates>,
    free: Vec<u32>,
    /// Lanes of keys without a directive of their own.
    spare: usize,
    buckets: BTreeMap<Bucket, Members>,
    division: Division,
    /// Where the grid of the windows begins, once the fast loop runs: see [`GRID_SLACK`].
    grid: Option<MonoTime>,
    ticked: MonoTime,
    /// How many of the slack's periods are over.
    period: u128,
    report: Option<Arriving>,
    /// What the clients' part is of what may pass here; the rest goes to aggregators below.
    own: Parts,
    /// Requests/s offered through aggregators below, by lane, and how many share, clients as one, each as much as it counts.
    beyond: Vec<f64>,
    sharing: f64,
}

/// The keys of one bucket.
#[derive(Debug, Default)]
struct Members {
    by_tenant: BTreeMap<Tenant, KeyId>,
    /// The latest directive that tells carried rates: the controller leads this bucket.
    led: bool,
}

/// Where the traffic of one key is followed. That of a key without a directive of its own also counts as traffic of the
/// class `default`, whose directive its clients follow for it. Small, because every entry of a report reads one.
#[derive(Clone, Copy, Debug)]
struct Way {
    own: u32,
    /// The lane of the class `default`, if the key has no directive of its own.
    shared: u32,
    directed: bool,
}

/// What a zone knows besides a bucket itself when it works out a directive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: MonoTime,
    /// The controller confirms what it is told.
    pub(crate) led: bool,
    pub(crate) clients: u32,
}

impl FastLoop {
    pub(crate) fn new(parameters: Parameters) -> Self {
        Self {
            parameters,
            ways: Vec::new(),
            lanes: Vec::new(),
            free: Vec::new(),
            spare: 0,
            buckets: BTreeMap::new(),
            division: Division::default(),
            grid: None,
            ticked: MonoTime::ZERO,
            period: 0,
            report: None,
            own: Parts::all(1.0),
            beyond: Vec::new(),
            sharing: 1.0,
        }
    }

    /// Takes notice of a key that is new; `board` says whether it was directed before it had traffic.
    pub(crate) fn introduce(&mut self, id: KeyId, key: &Key, board: &Board) {
        let members = self.buckets.entry(key.bucket.clone()).or_default();
        members.by_tenant.insert(key.tenant.clone(), id);
        let default = members.by_tenant.get(DEFAULT_TENANT).copied().filter(|default| *default != id);
        let directed = board.get(&key.bucket).is_some_and(|posted| posted.own(key.tenant.as_str()).is_some());
        let is_followed = directed || default.is_none() || self.spare < LANES_SPARE;
        let own = if is_followed { self.open_lane(None) } else { NONE };
        self.spare += usize::from(is_followed && !directed);
        let shared = if directed { NONE } else { self.lane_of(default) };
        if self.ways.len() <= id.index() {
            self.ways.resize(id.index() + 1, Way { own: NONE, shared: NONE, directed: false });
        }
        if let Some(way) = self.ways.get_mut(id.index()) {
            *way = Way { own, shared, directed };
        }
    }

    /// A key is gone, and its id will be another's.
    pub(crate) fn withdraw(&mut self, id: KeyId, key: &Key) {
        if let Some(members) = self.buckets.get_mut(&key.bucket)
            && members.by_tenant.get(&key.tenant) == Some(&id)
        {
            members.by_tenant.remove(&key.tenant);
        }
        let Some(way) = self.ways.get_mut(id.index()) else { return };
        if way.own != NONE {
            self.free.push(way.own);
            self.spare -= usize::from(!way.directed && self.spare > 0);
        }
        *way = Way { own: NONE, shared: NONE, directed: false };
    }

    fn open_lane(&mut self, young_until: Option<MonoTime>) -> u32 {
        let lane = KeyRates::new(young_until, &self.parameters);
        match self.free.pop() {
            Some(at) => {
                if let Some(held) = self.lanes.get_mut(at as usize) {
                    *held = lane;
                }
                at
            }
            None => {
                self.lanes.push(lane);
                self.lanes.len() as u32 - 1
            }
        }
    }

    fn lane_of(&self, id: Option<KeyId>) -> u32 {
        id.and_then(|id| self.ways.get(id.index())).map_or(NONE, |way| way.own)
    }

    /// The entries that follow are of a report that took `span` to gather. `first` says that they are the first of their
    /// client, whose share begins with them.
    pub(crate) fn begin(&mut self, now: MonoTime, span: Duration, first: bool) {
        let parameters = &self.parameters;
        self.report = self.on_grid(now).map(|now| Arriving::new(now, span, first, parameters));
    }

    /// The entries of the report arrived: what was counted of each key, without what came late.
    pub(crate) fn add(&mut self, entries: &[(KeyId, Counts)]) {
        let Some(arriving) = self.report.take() else { return };
        for (key, counts) in entries.iter().filter(|(_, counts)| counts.offered > 0) {
            let Some(way) = self.ways.get(key.index()) else { continue };
            for lane in [way.own, way.shared] {
                if let Some(lane) = self.lanes.get_mut(lane as usize) {
                    lane.add(&arriving, *counts, &self.parameters);
                }
            }
        }
    }

    /// The same of an aggregator below, whose report took `span` to gather, `None` if that says nothing of the present rate.
    /// What comes through aggregators below is no part of the fast loop's windows: each has one of its own, and what a few
    /// large reports say of single tenths of seconds would make the ratios of all others jump.
    pub(crate) fn add_branch(
        &self,
        entries: &[(KeyId, Counts)],
        span: Option<Duration>,
        traffic: &mut Traffic,
    ) {
        for (key, counts) in entries.iter().filter(|(_, counts)| counts.offered > 0) {
            let Some(way) = self.ways.get(key.index()) else { continue };
            for lane in [way.own, way.shared] {
                if lane != NONE {
                    traffic.add(lane as usize, counts.offered as f64);
                }
            }
        }
        traffic.settle(span, &self.parameters);
    }

    /// The controller has spoken of a bucket.
    pub(crate) fn on_directive(&mut self, directive: &BucketDirective, posted: &Posted) {
        let members = self.buckets.entry(directive.bucket.clone()).or_default();
        // Some keys without rates say nothing of the others: one that is only just known of has none yet.
        let has_rates = directive.keys.iter().any(|key| key.values.rate.is_some());
        if has_rates || directive.whole && !directive.keys.is_empty() {
            members.led = has_rates;
        }
        let default = members.by_tenant.get(DEFAULT_TENANT).copied();
        let named = |tenant: &Tenant| members.by_tenant.get(tenant).copied();
        let directed: Vec<KeyId> = if directive.whole {
            posted.keys().filter_map(|(tenant, _)| named(tenant)).collect()
        } else {
            directive.keys.iter().filter_map(|key| named(&key.tenant)).collect()
        };
        let mut no_longer = Vec::new();
        if directive.whole {
            let known = members.by_tenant.values().copied();
            let ways = &self.ways;
            no_longer.extend(known.filter(|id| ways.get(id.index()).is_some_and(|way| way.directed)));
            let still: HashSet<KeyId> = directed.iter().copied().collect();
            no_longer.retain(|id| !still.contains(id));
        }
        for id in no_longer {
            self.undirect(id, default);
        }
        for id in directed {
            self.direct(id);
        }
    }

    /// A key has a directive of its own from now on.
    fn direct(&mut self, id: KeyId) {
        let Some(Way { own, directed: false, .. }) = self.ways.get(id.index()).copied() else { return };
        let own = if own == NONE {
            let young_until = self.ticked + self.parameters.window + self.parameters.fast_period;
            self.open_lane(Some(young_until))
        } else {
            self.spare = self.spare.saturating_sub(1);
            own
        };
        if let Some(way) = self.ways.get_mut(id.index()) {
            *way = Way { own, shared: NONE, directed: true };
        }
    }

    /// A key follows the class `default` from now on.
    fn undirect(&mut self, id: KeyId, default: Option<KeyId>) {
        let shared = self.lane_of(default.filter(|default| *default != id));
        let Some(way) = self.ways.get_mut(id.index()) else { return };
        (way.directed, way.shared) = (false, shared);
        if self.spare < LANES_SPARE || shared == NONE {
            self.spare += 1;
        } else {
            self.free.push(std::mem::replace(&mut way.own, NONE));
        }
    }

    /// Time passes, once every period of the fast loop: shares and slacks follow. Linear in keys with traffic.
    pub(crate) fn on_tick(&mut self, now: MonoTime) {
        self.grid.get_or_insert(now);
        let now = self.on_grid(now).unwrap_or_default();
        let since_last = now.since(self.ticked);
        self.ticked = now;
        let kept = (-since_last.as_secs_f64() / self.parameters.share_time.as_secs_f64()).exp();
        for lane in self.lanes.iter_mut().filter(|lane| lane.used) {
            lane.offered *= kept;
        }
        // By the grid and not by the last time: a tick that comes a little early must not make a period one tick longer.
        let period = now.since(MonoTime::ZERO).as_nanos() / SLACK_PERIOD.as_nanos();
        if period > self.period {
            self.period = period;
            for lane in self.lanes.iter_mut().filter(|lane| lane.used) {
                lane.slack.on_period(std::mem::take(&mut lane.period), lane.cap, &self.parameters);
            }
        }
    }

    /// The time on the grid of the windows; `None` before the fast loop runs.
    fn on_grid(&self, now: MonoTime) -> Option<MonoTime> {
        self.grid.map(|grid| MonoTime::from_elapsed(now.since(grid) + GRID_SLACK))
    }

    /// Whether the zone lives on its hold of a bucket.
    pub(crate) fn is_on_hold(&self, bucket: &Bucket, led: bool) -> bool {
        !(led && self.buckets.get(bucket).is_some_and(|members| members.led))
    }
}
