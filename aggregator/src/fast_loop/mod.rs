//! The fast loop: follows the traffic of each key in tenths of seconds, and computes directives from it and
//! from the rates or the hold that the parent sent. Pure.

mod aggregator_directives;
mod allowances;
mod client_directives;
mod clock;
mod headroom;
mod key_rates;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plimsoll_core::directive::{BucketDirective, Posted};
use plimsoll_core::law::tail::Standing;
use plimsoll_core::law::{Division, parameters};
use plimsoll_core::names::{Bucket, DEFAULT_TENANT, Key, KeyId, Tenant};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Counts, Entered};

use crate::downstream::Shares;
use crate::key_counts::{Counted, Source};
use crate::tails::Tails;
use clock::Clock;
use headroom::BucketHeadroom;
use key_rates::{KeyRates, ReportSpan};

/// The slot of a tenant without a line of its own.
const NO_SLOT: u32 = u32::MAX;

/// The traffic of all lines. A line is a listed tenant, or a class with all its names; its id is its slot.
#[derive(Debug)]
pub(crate) struct FastLoop {
    rates: Vec<KeyRates>,
    pub(crate) tails: Tails,
    buckets: BTreeMap<Bucket, BucketKeys>,
    division: Division,
    clock: Clock,
    report: Option<ReportSpan>,
    /// The clients' share of what may pass here. The rest passes to child aggregators.
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

#[derive(Debug, Default)]
struct BucketKeys {
    by_tenant: BTreeMap<Tenant, u32>,
    /// True if the keys have rates; without rates the bucket is on hold.
    led: bool,
    /// The slot of each key with a directive, as of the latest directive.
    slots: Vec<u32>,
    headroom: BucketHeadroom,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// The time: on the grid of the windows where rates are computed.
    pub(crate) now: MonoTime,
    /// The same time by the clock of the zone.
    pub(crate) at: MonoTime,
    /// True while a controller leads.
    pub(crate) led: bool,
    /// The number of clients that share the rates.
    pub(crate) clients: u32,
}

impl FastLoop {
    pub(crate) fn new(report_interval: Duration) -> Self {
        Self {
            rates: Vec::new(),
            tails: Tails::new(report_interval),
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

    pub(crate) fn open(&mut self, line: KeyId, key: &Key) {
        self.track(line, key, None);
    }

    /// Tracks a line that was counted elsewhere before: its window has not seen enough for a while.
    pub(crate) fn open_later(&mut self, line: KeyId, key: &Key) {
        let young_until = self.clock.ticked + parameters::WINDOW + parameters::FAST_PERIOD;
        self.track(line, key, Some(young_until));
    }

    fn track(&mut self, line: KeyId, key: &Key, young_until: Option<MonoTime>) {
        let keys = self.buckets.entry(key.bucket.clone()).or_default();
        keys.by_tenant.insert(key.tenant.clone(), line.0);
        self.rates
            .resize_with(self.rates.len().max(line.index() + 1), KeyRates::default);
        self.rates[line.index()] = KeyRates {
            young_until,
            ..KeyRates::default()
        };
    }

    pub(crate) fn close(&mut self, key: &Key) {
        if let Some(keys) = self.buckets.get_mut(&key.bucket) {
            keys.by_tenant.remove(&key.tenant);
        }
    }

    pub(crate) fn remove_buckets(&mut self, gone: &BTreeSet<Bucket>) {
        self.buckets.retain(|bucket, _| !gone.contains(bucket));
    }

    /// Begins a report of a client.
    pub(crate) fn begin(&mut self, now: MonoTime, report: &Entered) {
        // Rates fade by the time of a stall before the reports that waited add to them.
        if self.clock.is_behind(now) {
            self.on_tick(now, false);
        }
        let now = self.clock.on_grid(now);
        self.report = now.map(|now| ReportSpan::new(now, report));
    }

    /// Adds an entry of the report: the counts of a key without late counts. `held` is the standing
    /// of the name that the client was sent.
    #[inline]
    pub(crate) fn add(
        &mut self,
        now: MonoTime,
        id: KeyId,
        counted: Counted,
        counts: Counts,
        held: Option<Standing>,
    ) {
        let Some(report) = self.report.as_ref().filter(|_| counts.offered > 0) else {
            return;
        };
        let line = counted.line;
        if let Some(rates) = self.rates.get_mut(line.index()) {
            rates.add(report, counts);
        }
        let requests = counts.offered as f64;
        match counted.source {
            Source::Listed => {}
            Source::Name => self.tails.add(now, line, id, requests, held),
            Source::Unnamed => self.tails.add_unnamed(now, line, requests, held),
        }
    }

    pub(crate) fn end(&mut self) {
        self.report = None;
    }

    /// Takes a directive of the parent, with which `posted` is the bucket's state. Tenants that are listed no more are
    /// closed, so their lines must have left before.
    pub(crate) fn on_directive(&mut self, directive: &BucketDirective, posted: &Posted) {
        let keys = self.buckets.entry(directive.bucket.clone()).or_default();
        // A few keys without rates show nothing about the others: a key that is new to the controller has
        // none yet.
        let has_rates = directive.keys.iter().any(|key| key.values.rate.is_some());
        if has_rates || directive.whole && !directive.keys.is_empty() {
            keys.led = has_rates;
        }
        for tenant in self.unlisted(&directive.bucket, posted) {
            self.close(&Key {
                bucket: directive.bucket.clone(),
                tenant,
            });
        }
    }

    /// The tenants and classes of plans with their own line in a bucket that the policy lists no more.
    pub(crate) fn unlisted(&self, bucket: &Bucket, posted: &Posted) -> Vec<Tenant> {
        let tenants = self
            .buckets
            .get(bucket)
            .into_iter()
            .flat_map(|keys| keys.by_tenant.keys());
        let unlisted = tenants.filter(|tenant| {
            tenant.as_str() != DEFAULT_TENANT && posted.own(tenant.as_str()).is_none()
        });
        unlisted.cloned().collect()
    }

    /// Fades smoothed rates in every period of the fast loop, and updates slacks and depths at the end of each period
    /// of the slack. `settled` is true if the controller leads and no client has joined for a while. Linear in keys.
    pub(crate) fn on_tick(&mut self, now: MonoTime, settled: bool) {
        let (elapsed, has_period_ended) = self.clock.advance(now);
        if has_period_ended {
            for keys in self.buckets.values_mut() {
                let each = keys
                    .slots
                    .iter()
                    .filter_map(|slot| self.rates.get(*slot as usize));
                let counts = each.fold(Counts::ZERO, |sum, rates| sum.plus(rates.period));
                keys.headroom.on_period(counts, settled && keys.led);
            }
        }
        self.tails.on_time(elapsed);
        let kept = (-elapsed.as_secs_f64() / parameters::SHARE_TIME.as_secs_f64()).exp();
        for rates in self.rates.iter_mut().filter(|rates| rates.used) {
            rates.offered *= kept;
            if has_period_ended {
                rates
                    .slack
                    .on_period(std::mem::take(&mut rates.period), rates.room);
            }
        }
    }

    /// Returns true if a bucket lives on its hold: no controller leads, or the bucket has no rates.
    pub(crate) fn is_on_hold(&self, bucket: &Bucket, led: bool) -> bool {
        !(led && self.buckets.get(bucket).is_some_and(|keys| keys.led))
    }
}
