//! The fast loop: follows the traffic of each key in tenths of seconds, and computes directives from it and
//! from the rates that the parent sent. Pure.

mod aggregator_directives;
mod allowances;
mod client_directives;
mod clock;
mod headroom;
mod key_rates;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use plimsoll_core::directive::{Board, BucketDirective, Posted};
use plimsoll_core::law::{Division, Parameters};
use plimsoll_core::names::{Bucket, DEFAULT_TENANT, Key, KeyId, Tenant};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::Counts;

use crate::downstream::{Shares, Traffic};
use clock::Clock;
use headroom::BucketHeadroom;
use key_rates::{KeyRates, ReportSpan};

/// Keys without a directive of their own that are tracked from their first request on, so that a directive
/// finds their past. Others are tracked from their directive on.
const UNDIRECTED_MAX: usize = 4_096;
/// The slot of a key that is not tracked.
const NO_SLOT: u32 = u32::MAX;

/// The traffic of all keys.
#[derive(Debug)]
pub(crate) struct FastLoop {
    parameters: Parameters,
    /// By key id.
    slots: Vec<KeySlots>,
    /// The rates of tracked keys, by slot.
    rates: Vec<KeyRates>,
    free: Vec<u32>,
    /// Tracked keys without a directive of their own.
    undirected: usize,
    buckets: BTreeMap<Bucket, BucketKeys>,
    division: Division,
    clock: Clock,
    /// The span of the report that is being merged.
    report: Option<ReportSpan>,
    /// The clients' share of what may pass here. The rest goes to child aggregators.
    client_shares: Shares,
    /// Requests/s offered through child aggregators, by slot.
    aggregator_rates: Vec<f64>,
    /// Requests/s offered here in all at the latest division of limits, by slot; empty without child
    /// aggregators.
    divided_rates: Vec<f64>,
    /// The weight of all that share a limit here: each child aggregator by its presence, and clients together
    /// as one.
    sharing: f64,
}

/// The keys of one bucket.
#[derive(Debug)]
struct BucketKeys {
    by_tenant: BTreeMap<Tenant, KeyId>,
    /// True if the latest directive carried rates, so that the controller leads this bucket.
    led: bool,
    /// The slot of each key with a directive, as of the latest directive.
    slots: Vec<u32>,
    headroom: BucketHeadroom,
}

impl BucketKeys {
    fn new(parameters: &Parameters) -> Self {
        let headroom = BucketHeadroom::new(parameters);
        Self { by_tenant: BTreeMap::new(), led: false, slots: Vec::new(), headroom }
    }
}

/// The slots in which the traffic of one key is tracked. The traffic of a key without a directive of its own
/// also counts as traffic of the class `default`, whose directive its clients follow. Small, because every
/// report entry reads one.
#[derive(Clone, Copy, Debug)]
struct KeySlots {
    own: u32,
    /// The slot of the class `default`, if the key has no directive of its own.
    shared: u32,
    directed: bool,
}

impl KeySlots {
    const NONE: Self = Self { own: NO_SLOT, shared: NO_SLOT, directed: false };
}

/// The state of the zone that a directive depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    pub(crate) now: MonoTime,
    /// The controller confirms the zone's reports.
    pub(crate) led: bool,
    /// Clients that share the guards.
    pub(crate) clients: u32,
}

impl FastLoop {
    pub(crate) fn new(parameters: Parameters) -> Self {
        Self {
            parameters,
            slots: Vec::new(),
            rates: Vec::new(),
            free: Vec::new(),
            undirected: 0,
            buckets: BTreeMap::new(),
            division: Division::default(),
            clock: Clock::default(),
            report: None,
            client_shares: Shares::all(1.0),
            aggregator_rates: Vec::new(),
            divided_rates: Vec::new(),
            sharing: 1.0,
        }
    }

    /// Adds a key. `board` holds the directives in force: the key may have one before it has traffic.
    pub(crate) fn add_key(&mut self, id: KeyId, key: &Key, board: &Board) {
        let new = || BucketKeys::new(&self.parameters);
        let keys = self.buckets.entry(key.bucket.clone()).or_insert_with(new);
        keys.by_tenant.insert(key.tenant.clone(), id);
        let default = keys.by_tenant.get(DEFAULT_TENANT).copied().filter(|default| *default != id);
        let directed = board.get(&key.bucket).is_some_and(|posted| posted.own(key.tenant.as_str()).is_some());
        let is_tracked = directed || default.is_none() || self.undirected < UNDIRECTED_MAX;
        let own = if is_tracked { self.open_slot(None) } else { NO_SLOT };
        self.undirected += usize::from(is_tracked && !directed);
        let shared = if directed { NO_SLOT } else { self.slot_of(default) };
        if self.slots.len() <= id.index() {
            self.slots.resize(id.index() + 1, KeySlots::NONE);
        }
        self.slots[id.index()] = KeySlots { own, shared, directed };
    }

    /// Removes a key, whose id will be reused.
    pub(crate) fn remove_key(&mut self, id: KeyId, key: &Key) {
        if let Some(keys) = self.buckets.get_mut(&key.bucket)
            && keys.by_tenant.get(&key.tenant) == Some(&id)
        {
            keys.by_tenant.remove(&key.tenant);
        }
        let KeySlots { own, directed, .. } = std::mem::replace(&mut self.slots[id.index()], KeySlots::NONE);
        if own != NO_SLOT {
            self.free.push(own);
            self.undirected -= usize::from(!directed && self.undirected > 0);
        }
    }

    /// Removes buckets, all keys of which were removed.
    pub(crate) fn remove_buckets(&mut self, gone: &BTreeSet<Bucket>) {
        self.buckets.retain(|bucket, _| !gone.contains(bucket));
    }

    fn open_slot(&mut self, young_until: Option<MonoTime>) -> u32 {
        let rates = KeyRates::new(young_until, &self.parameters);
        let Some(slot) = self.free.pop() else {
            self.rates.push(rates);
            return self.rates.len() as u32 - 1;
        };
        self.rates[slot as usize] = rates;
        slot
    }

    fn slot_of(&self, id: Option<KeyId>) -> u32 {
        id.map_or(NO_SLOT, |id| self.slots[id.index()].own)
    }

    /// Begins a report of a client, which covers `span`. `is_first` is true for the first one of the client.
    pub(crate) fn begin(&mut self, now: MonoTime, span: Duration, is_first: bool) {
        let now = self.clock.on_grid(now);
        self.report = now.map(|now| ReportSpan::new(now, span, is_first, &self.parameters));
    }

    /// Adds the entries of the report: the counts of each key without those that came late.
    pub(crate) fn add(&mut self, entries: &[(KeyId, Counts)]) {
        let Some(report) = self.report.take() else { return };
        for (id, counts) in entries.iter().filter(|(_, counts)| counts.offered > 0) {
            let KeySlots { own, shared, .. } = self.slots[id.index()];
            for slot in [own, shared] {
                if let Some(rates) = self.rates.get_mut(slot as usize) {
                    rates.add(&report, *counts, &self.parameters);
                }
            }
        }
    }

    /// Adds the entries of a child aggregator's report to its traffic. The windows of the fast loop do not include
    /// this traffic: each child has a fast loop of its own, and a few large reports would make the ratios of
    /// all others jump between tenths of seconds.
    pub(crate) fn add_to_child(&self, entries: &[(KeyId, Counts)], traffic: &mut Traffic) {
        for (id, counts) in entries.iter().filter(|(_, counts)| counts.offered > 0) {
            let KeySlots { own, shared, .. } = self.slots[id.index()];
            for slot in [own, shared] {
                if slot != NO_SLOT {
                    traffic.add(slot as usize, counts.offered as f64);
                }
            }
        }
    }

    /// Ends the report of a child aggregator. `span` is the time that it covers, `None` if it shows nothing about
    /// the present rate.
    pub(crate) fn settle_child(&self, span: Option<Duration>, traffic: &mut Traffic) {
        traffic.settle(span, &self.parameters);
    }

    /// Takes a directive of the parent, which has been applied to `posted`.
    pub(crate) fn on_directive(&mut self, directive: &BucketDirective, posted: &Posted) {
        let new = || BucketKeys::new(&self.parameters);
        let keys = self.buckets.entry(directive.bucket.clone()).or_insert_with(new);
        // A few keys without rates show nothing about the others: a key that is new to the controller has
        // none yet.
        let has_rates = directive.keys.iter().any(|key| key.values.rate.is_some());
        if has_rates || directive.whole && !directive.keys.is_empty() {
            keys.led = has_rates;
        }
        let default = keys.by_tenant.get(DEFAULT_TENANT).copied();
        let id_of = |tenant: &Tenant| keys.by_tenant.get(tenant).copied();
        let directed: Vec<KeyId> = if directive.whole {
            posted.keys().filter_map(|(tenant, _)| id_of(tenant)).collect()
        } else {
            directive.keys.iter().filter_map(|key| id_of(&key.tenant)).collect()
        };
        let mut undirected = Vec::new();
        if directive.whole {
            let still: HashSet<KeyId> = directed.iter().copied().collect();
            let known = keys.by_tenant.values().copied();
            undirected.extend(known.filter(|id| self.slots[id.index()].directed && !still.contains(id)));
        }
        for id in undirected {
            self.undirect(id, default);
        }
        for id in directed {
            self.direct(id);
        }
    }

    /// The key has a directive of its own from now on.
    fn direct(&mut self, id: KeyId) {
        let KeySlots { own, directed: false, .. } = self.slots[id.index()] else { return };
        let own = if own == NO_SLOT {
            let young_until = self.clock.ticked + self.parameters.window + self.parameters.fast_period;
            self.open_slot(Some(young_until))
        } else {
            self.undirected = self.undirected.saturating_sub(1);
            own
        };
        self.slots[id.index()] = KeySlots { own, shared: NO_SLOT, directed: true };
    }

    /// The key follows the class `default` from now on.
    fn undirect(&mut self, id: KeyId, default: Option<KeyId>) {
        let shared = self.slot_of(default.filter(|default| *default != id));
        let KeySlots { mut own, .. } = self.slots[id.index()];
        if self.undirected < UNDIRECTED_MAX || shared == NO_SLOT {
            self.undirected += 1;
        } else {
            self.free.push(std::mem::replace(&mut own, NO_SLOT));
        }
        self.slots[id.index()] = KeySlots { own, shared, directed: false };
    }

    /// Fades smoothed rates and updates slacks and depths, once every period of the fast loop. `settled` is
    /// true if the controller leads and no client has joined for a while. Linear in keys with traffic.
    pub(crate) fn on_tick(&mut self, now: MonoTime, settled: bool) {
        let (elapsed, has_period_ended) = self.clock.advance(now);
        if has_period_ended {
            for keys in self.buckets.values_mut() {
                let each = keys.slots.iter().filter_map(|slot| self.rates.get(*slot as usize));
                let counts = each.fold(Counts::ZERO, |sum, rates| sum.plus(rates.period));
                keys.headroom.on_period(counts, settled && keys.led, &self.parameters);
            }
        }
        let kept = (-elapsed.as_secs_f64() / self.parameters.share_time.as_secs_f64()).exp();
        for rates in self.rates.iter_mut().filter(|rates| rates.used) {
            rates.offered *= kept;
            if has_period_ended {
                rates.slack.on_period(std::mem::take(&mut rates.period), rates.room, &self.parameters);
            }
        }
    }

    /// Returns true if the zone lives on its hold of a bucket.
    pub(crate) fn is_on_hold(&self, bucket: &Bucket, led: bool) -> bool {
        !(led && self.buckets.get(bucket).is_some_and(|keys| keys.led))
    }
}
