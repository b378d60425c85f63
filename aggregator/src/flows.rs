//! The fast loop: what flows through the zone by key, and the directives for its clients that follow from that and from
//! what the controller gave the zone. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::bucket::{Bucket, DEFAULT_TENANT, Key, KeyId, Tenant};
use plimsoll_core::directive::{Board, BucketDirective, KeyDirective, Posted, Terms, Values};
use plimsoll_core::law::{
    Claimant, Class, Division, Parameters, SLACK_PERIOD, Slack, Window, divide_hold, fast_ratio,
};
use plimsoll_core::policy::OnSilence;
use plimsoll_core::presence::Presences;
use plimsoll_core::rate::{Limit, Rate};
use plimsoll_core::ratio::DropRatio;
use plimsoll_core::report::Counts;
use plimsoll_core::time::MonoTime;

/// Bins of time end this much before the loop looks at them, so that a tick that comes a little late does not put
/// every later one before the end of its bin, and all rates a whole bin behind.
const GRID_SLACK: Duration = Duration::from_millis(5);

/// The traffic of all keys.
#[derive(Debug)]
pub(crate) struct Flows {
    parameters: Parameters,
    /// By key id.
    flows: Vec<Flow>,
    buckets: BTreeMap<Bucket, Members>,
    division: Division,
    /// Where the grid of the windows begins, once the fast loop runs: see [`GRID_SLACK`].
    grid: Option<MonoTime>,
    ticked: MonoTime,
    /// How many of the slack's periods are over.
    period: u128,
}

/// The keys of one bucket.
#[derive(Debug, Default)]
struct Members {
    by_tenant: BTreeMap<Tenant, KeyId>,
    /// The latest directive that tells carried rates: the controller leads this bucket.
    led: bool,
}

/// The traffic of one key. That of a key without a directive of its own also counts as traffic of the class
/// `default`, whose directive its clients follow for it.
#[derive(Debug)]
struct Flow {
    default: Option<KeyId>,
    directed: bool,
    window: Option<Box<Window>>,
    /// Requests/s offered, smoothed as clients smooth theirs: what a client's share is a share of. As of `ticked`.
    offered: f64,
    /// What came since the slack was last looked at.
    period: Counts,
    cap: f64,
    slack: Slack,
}

/// What a zone knows besides a bucket itself when it works out a directive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: MonoTime,
    /// The controller confirms what it is told.
    pub(crate) led: bool,
    pub(crate) clients: u32,
}

impl Flows {
    pub(crate) fn new(parameters: Parameters) -> Self {
        Self {
            parameters,
            flows: Vec::new(),
            buckets: BTreeMap::new(),
            division: Division::default(),
            grid: None,
            ticked: MonoTime::ZERO,
            period: 0,
        }
    }

    /// Takes notice of keys that are new; `board` says which of them were directed before they had traffic.
    pub(crate) fn introduce(&mut self, keys: &[Key], board: &Board) {
        for (id, key) in (0..).map(KeyId).zip(keys).skip(self.flows.len()) {
            let members = self.buckets.entry(key.bucket.clone()).or_default();
            members.by_tenant.insert(key.tenant.clone(), id);
            let default = members.by_tenant.get(DEFAULT_TENANT).copied().filter(|default| *default != id);
            let posted = board.get(&key.bucket);
            self.flows.push(Flow {
                default,
                directed: posted.is_some_and(|posted| posted.own(key.tenant.as_str()).is_some()),
                window: None,
                offered: 0.0,
                period: Counts::ZERO,
                cap: 0.0,
                slack: Slack::new(&self.parameters),
            });
        }
    }

    /// Counts arrived that took `span` to gather. `first` says that they are the first of their client, whose share
    /// begins with them.
    pub(crate) fn add(&mut self, now: MonoTime, key: KeyId, counts: Counts, span: Duration, first: bool) {
        let Some(now) = self.on_grid(now) else { return };
        let Some(flow) = self.flows.get_mut(key.index()) else { return };
        flow.add(now, counts, span, first, &self.parameters);
        let follows = if flow.directed { None } else { flow.default };
        if let Some(default) = follows.and_then(|default| self.flows.get_mut(default.index())) {
            default.add(now, counts, span, first, &self.parameters);
        }
    }

    /// The controller has spoken of a bucket.
    pub(crate) fn on_directive(&mut self, directive: &BucketDirective, posted: &Posted) {
        let members = self.buckets.entry(directive.bucket.clone()).or_default();
        // Some keys without rates say nothing of the others: one that is only just known of has none yet.
        let has_rates = directive.keys.iter().any(|key| key.values.rate.is_some());
        if has_rates || directive.whole && !directive.keys.is_empty() {
            members.led = has_rates;
        }
        if directive.whole {
            for id in members.by_tenant.values() {
                if let Some(flow) = self.flows.get_mut(id.index()) {
                    flow.directed = false;
                }
            }
        }
        let keys: Vec<&Tenant> = if directive.whole {
            posted.keys().map(|(tenant, _)| tenant).collect()
        } else {
            directive.keys.iter().map(|key| &key.tenant).collect()
        };
        for id in keys.into_iter().filter_map(|tenant| members.by_tenant.get(tenant)) {
            if let Some(flow) = self.flows.get_mut(id.index()) {
                flow.directed = true;
            }
        }
    }

    /// Time passes, once every period of the fast loop: shares and slacks follow. Linear in keys with traffic.
    pub(crate) fn on_tick(&mut self, now: MonoTime) {
        self.grid.get_or_insert(now);
        let now = self.on_grid(now).unwrap_or_default();
        let since_last = now.since(self.ticked);
        self.ticked = now;
        let kept = (-since_last.as_secs_f64() / self.parameters.share_time.as_secs_f64()).exp();
        for flow in self.flows.iter_mut().filter(|flow| flow.window.is_some()) {
            flow.offered *= kept;
        }
        // By the grid and not by the last time: a tick that comes a little early must not make a period one tick longer.
        let period = now.since(MonoTime::ZERO).as_nanos() / SLACK_PERIOD.as_nanos();
        if period > self.period {
            self.period = period;
            for flow in self.flows.iter_mut().filter(|flow| flow.window.is_some()) {
                flow.slack.on_period(std::mem::take(&mut flow.period), flow.cap, &self.parameters);
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

    /// What the zone's clients are to be told of a bucket. O(K log K) for K keys with directives.
    pub(crate) fn directive(&mut self, bucket: &Bucket, posted: &Posted, moment: Moment) -> BucketDirective {
        let terms = Terms { presences: None, hold: None, clients: Some(moment.clients), ..*posted.terms() };
        let keys = match posted.terms().limit {
            Limit::Unlimited | Limit::Unknown => plain(posted, Values::default()),
            Limit::PerSecond(Rate::ZERO) => {
                let nothing = Some(Rate::ZERO);
                let ratio = Some(DropRatio::ALL);
                plain(posted, Values { ratio, guard: nothing, offered: nothing, ..Values::default() })
            }
            Limit::PerSecond(_) => {
                let now = self.on_grid(moment.now).unwrap_or_default();
                self.keys(bucket, posted, Moment { now, ..moment })
            }
        };
        BucketDirective { bucket: bucket.clone(), whole: true, terms, keys }
    }

    fn keys(&mut self, bucket: &Bucket, posted: &Posted, moment: Moment) -> Vec<KeyDirective> {
        let on_hold = self.is_on_hold(bucket, moment.led);
        let terms = posted.terms();
        let keeps_ratio = on_hold
            && terms.on_silence == OnSilence::Ratio
            && posted.own(DEFAULT_TENANT).is_some_and(|values| values.ratio.is_some());
        let held = match terms.hold {
            Some(hold) if on_hold && !keeps_ratio => Some(self.divide(bucket, posted, hold, moment.now)),
            _ => None,
        };
        let Some(members) = self.buckets.get(bucket) else { return Vec::new() };
        let mut keys = Vec::new();
        for (at, (tenant, values)) in posted.keys().enumerate() {
            let flow = members.by_tenant.get(tenant).and_then(|id| self.flows.get_mut(id.index()));
            let per_second = |rate: Option<Rate>| rate.map(Rate::per_second);
            let (allowed, cap) = match &held {
                Some(held) => (held.get(at).copied(), held.get(at).copied()),
                None => (per_second(values.rate), per_second(values.cap)),
            };
            let parameters = &self.parameters;
            let (window, offered, factor) = match flow {
                Some(flow) => {
                    flow.cap = cap.unwrap_or_default();
                    (flow.window.as_deref_mut(), flow.offered, flow.slack.factor())
                }
                None => (None, 0.0, parameters.slack_min),
            };
            let ratio = match allowed {
                Some(allowed) if !keeps_ratio && (held.is_some() || !on_hold) => {
                    Some(fast_ratio(window, moment.now, allowed, on_hold, values.ratio, parameters))
                }
                _ => values.ratio,
            };
            let values = Values {
                ratio,
                guard: cap.and_then(|cap| told(cap * factor)),
                offered: told(offered),
                ..Values::default()
            };
            keys.push(KeyDirective { tenant: tenant.clone(), values });
        }
        keys
    }

    /// The zone's own division of what it lives on, by the keys that have a directive, in their order.
    fn divide(&mut self, bucket: &Bucket, posted: &Posted, hold: Rate, now: MonoTime) -> Vec<f64> {
        let parameters = self.parameters;
        let flows = &mut self.flows;
        let Some(members) = self.buckets.get(bucket) else { return Vec::new() };
        let mut claimants: Vec<Claimant> = posted
            .keys()
            .map(|(tenant, values)| {
                let flow = members.by_tenant.get(tenant).and_then(|id| flows.get_mut(id.index()));
                let entitlement = values.entitlement;
                let declared = entitlement.is_none_or(|entitlement| entitlement.declared);
                Claimant {
                    offered: flow.map_or(0.0, |flow| flow.rate(now, &parameters)),
                    weight: entitlement.map_or(1.0, |entitlement| entitlement.weight.get()),
                    floor: entitlement.map_or(0.0, |entitlement| entitlement.floor.per_second()),
                    tenant_limit: entitlement
                        .and_then(|entitlement| entitlement.tenant_limit)
                        .map_or(f64::INFINITY, Rate::per_second),
                    class: match (tenant.is_default_class(), declared) {
                        (true, _) => Class::Default,
                        (false, true) => Class::Listed,
                        (false, false) => Class::Unlisted,
                    },
                }
            })
            .collect();
        let presences = posted.terms().presences.map_or(1.0, Presences::as_f64);
        divide_hold(&mut self.division, hold.per_second(), presences, &mut claimants, &parameters)
    }
}

/// A rate as it travels, in thousandths, so that a figure that fades away for ever is not told for ever.
fn told(per_second: f64) -> Option<Rate> {
    Rate::new((per_second * 1e3).round() / 1e3).ok()
}

/// The same values for every key that has a directive.
fn plain(posted: &Posted, values: Values) -> Vec<KeyDirective> {
    posted.keys().map(|(tenant, _)| KeyDirective { tenant: tenant.clone(), values }).collect()
}

impl Flow {
    fn add(&mut self, now: MonoTime, counts: Counts, span: Duration, first: bool, parameters: &Parameters) {
        if counts.offered == 0 {
            return;
        }
        let offered = counts.offered as f64;
        let window = self.window.get_or_insert_default();
        if first {
            window.add_first(now, offered, span, parameters)
        } else {
            window.add(now, offered, span, parameters)
        }
        self.period = self.period.plus(counts);
        // At once and not spread: lagging behind what clients know of themselves, it would make every share too large.
        let time = if first { span.max(Duration::from_millis(1)) } else { parameters.share_time };
        self.offered += offered / time.as_secs_f64();
    }

    /// What is offered now, over the longer window where few come.
    fn rate(&mut self, now: MonoTime, parameters: &Parameters) -> f64 {
        let Some(window) = &mut self.window else { return 0.0 };
        let rate = window.rate(now, parameters);
        if rate * parameters.window.as_secs_f64() >= parameters.counts_min {
            rate
        } else {
            window.over(parameters.window_few, parameters)
        }
    }
}
