//! One aggregator: the rates of its traffic, smoothed over its reports, and what it is sent.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use plimsoll_core::directive::Board;
use plimsoll_core::law::presence::presence;
use plimsoll_core::law::tail::Tail;
use plimsoll_core::law::{Parameters, smoothed};
use plimsoll_core::names::{Bucket, Key, KeyId, Tenant};
use plimsoll_core::quantity::{MonoTime, Rate};
use plimsoll_core::report::{Entered, InstanceId, Origin, Report};
use plimsoll_policy::Policy;

use super::callers::Callers;

/// Time that a conflict of names is shown after one of the two processes last replaced the other.
/// Each returns within 12 s.
const CONFLICT_SHOWN: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Aggregator {
    pub(super) instance: InstanceId,
    /// The instance that the present one replaced.
    replaced: Option<InstanceId>,
    /// The time when a replaced instance last returned: two processes have one zone and name.
    conflict_at: Option<MonoTime>,
    rates: Vec<f64>,
    fresh: Fresh,
    /// Requests offered and passed, by key, in the parts of an incomplete report.
    staged: Vec<(KeyId, f64, f64)>,
    /// The demand of unlisted names in the buckets where it cuts some, in its latest report.
    pub(crate) tails: BTreeMap<Key, Tail>,
    /// Names that may exceed their tenant limit, with their rates there.
    limited: Vec<(Key, Rate)>,
    pub(super) callers: Callers,
    /// Its parts of the limits of such names, of those that exceed them over all aggregators.
    pub(crate) limits: Vec<(Key, Rate)>,
    /// The names that it asked for with their classes, for the next messages.
    pub(crate) catalogued: Vec<(Tenant, Tenant)>,
    /// The number of its children in its latest report with any; `None` before.
    pub(crate) clients: Option<u32>,
    /// The parts of limits in requests/s that it brought with its last greeting.
    pub(crate) holds: BTreeMap<Bucket, Rate>,
    /// The parts of limits in requests/s that it brought with its first greeting to this controller. Parts
    /// that it brings later were given to it by this controller.
    pub(crate) first_holds: BTreeMap<Bucket, Rate>,
    pub(crate) greeted_at: MonoTime,
    /// The number of its reports with a span, which show its rates.
    pub(crate) rated_reports: u32,
    /// True once it is sent rates. Until then it lives on a hold.
    pub(crate) served: bool,
    /// True if it has reported, with counts or without, since the last tick.
    pub(crate) reported: bool,
    /// The time since its last report, as far as other aggregators reported meanwhile.
    pub(crate) silent_for: Duration,
    pub(crate) activity: Activity,
    pub(crate) board: Board,
}

/// The counts of whole reports since the last tick, by key.
#[derive(Debug, Default)]
struct Fresh {
    span: Duration,
    /// The longest span of a single report.
    gap: Duration,
    offered: Vec<f64>,
    passed: Vec<f64>,
}

/// The evidence of one aggregator in one tick, as the balance of a bucket uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Activity {
    /// It reported no counts, or is not silent for long enough: the balance does not move.
    #[default]
    Idle,
    Counted {
        span: Duration,
        /// Maximum time that a single report covers. Several delayed reports in one tick are no
        /// silence.
        gap: Duration,
    },
    /// It is silent. Its last rates and its hold stand in for its counts over this further time.
    Silent(Duration),
}

// === impl Aggregator ===

impl Aggregator {
    pub(super) fn new(now: MonoTime, instance: InstanceId, holds: BTreeMap<Bucket, Rate>) -> Self {
        Self {
            instance,
            replaced: None,
            conflict_at: None,
            rates: Vec::new(),
            fresh: Fresh::default(),
            staged: Vec::new(),
            tails: BTreeMap::new(),
            limited: Vec::new(),
            callers: Callers::default(),
            limits: Vec::new(),
            catalogued: Vec::new(),
            clients: None,
            holds: BTreeMap::new(),
            first_holds: holds,
            greeted_at: now,
            rated_reports: 0,
            served: false,
            reported: true,
            silent_for: Duration::ZERO,
            activity: Activity::Idle,
            board: Board::default(),
        }
    }

    /// Takes the greeting of an instance. Returns the instance before, which may be the same.
    pub(super) fn greet(
        &mut self,
        now: MonoTime,
        instance: InstanceId,
        holds: BTreeMap<Bucket, Rate>,
    ) -> InstanceId {
        self.reported = true;
        self.greeted_at = now;
        self.staged.clear();
        // It asks again on each stream.
        self.catalogued.clear();
        self.holds = holds;
        let before = std::mem::replace(&mut self.instance, instance);
        if before != instance {
            // Each start of a process draws a new id, so a process that returns never ended.
            if self.replaced == Some(instance) {
                self.conflict_at = Some(now);
            }
            self.replaced = Some(before);
        }
        before
    }

    pub(super) fn enter(&mut self, report: &Report, entered: &Entered) {
        self.reported = true;
        if let Some(span) = entered.span.filter(|span| !span.is_zero()) {
            self.stage(entered);
            if !report.more {
                self.add_staged(span);
            }
        }
        if !report.more && report.time.is_some() {
            self.tails.clone_from(&report.names.tails);
            self.limited.clone_from(&report.names.limited);
            self.callers.enter(&report.names.callers);
        }
        // A restarted aggregator has no clients at first. It is sent the last number above zero, and waits
        // for as many clients.
        if !report.more && report.time.is_some() && report.children > 0 {
            self.clients = Some(report.children);
        }
    }

    /// The names that may exceed their tenant limit, with the requests/s there that still count.
    pub(super) fn limited(&self) -> impl Iterator<Item = (&Key, f64)> {
        let names = self.limited.iter();
        names.map(|(key, rate)| (key, self.presence() * rate.per_second()))
    }

    /// Sets its parts of the limits, by its share of the rates of each name that exceeds its limit.
    pub(super) fn divide_limits(&mut self, policy: &Policy, rates: &HashMap<Key, f64>) {
        let part = |(key, rate): &(Key, Rate)| {
            let (limit, _) = policy.tenant_limit(&key.tenant, &key.bucket)?;
            let (limit, all) = (limit.per_second(), *rates.get(key)?);
            let part = Rate::computed(limit * rate.per_second() / all)?;
            (all > limit).then(|| (key.clone(), part))
        };
        self.limits = self.limited.iter().filter_map(part).collect();
    }

    /// Keeps the counts of one part of a report until the last part shows that they are all there: a tick between
    /// two parts must not take the keys of the later part for idle.
    fn stage(&mut self, entered: &Entered) {
        for entry in entered
            .entries
            .iter()
            .filter(|entry| entry.origin == Origin::Observed)
        {
            // Without an id the key found no room, and was counted as rejected.
            let Some(own) = entry.own else { continue };
            // Late counts tell how much was offered, but not how fast.
            let (counts, late) = (entry.delta.counts, entry.delta.late);
            let offered = counts.offered.saturating_sub(late.offered) as f64;
            self.staged.push((
                own,
                offered,
                counts.passed().saturating_sub(late.passed()) as f64,
            ));
        }
    }

    fn add_staged(&mut self, span: Duration) {
        self.rated_reports = self.rated_reports.saturating_add(1);
        self.fresh.span += span;
        self.fresh.gap = self.fresh.gap.max(span);
        for (own, offered, passed) in std::mem::take(&mut self.staged) {
            let own = own.index();
            if self.fresh.offered.len() <= own {
                self.fresh.offered.resize(own + 1, 0.0);
                self.fresh.passed.resize(own + 1, 0.0);
            }
            self.fresh.offered[own] += offered;
            self.fresh.passed[own] += passed;
        }
    }

    pub(super) fn on_tick(
        &mut self,
        since_last: Duration,
        any_reported: bool,
        parameters: &Parameters,
    ) {
        self.activity = Activity::Idle;
        let was_silent_for = self.silent_for;
        if self.reported {
            self.silent_for = Duration::ZERO;
        } else if any_reported {
            self.silent_for += since_last;
        }
        let after = parameters.silent_after();
        if !self.fresh.span.is_zero() {
            self.activity = Activity::Counted {
                span: self.fresh.span,
                gap: self.fresh.gap,
            };
            self.smooth(parameters);
        } else if !self.reported && any_reported && self.silent_for >= after {
            // The first silent tick accounts for all the time since the last report.
            let span = if was_silent_for < after {
                self.silent_for
            } else {
                since_last
            };
            self.activity = Activity::Silent(span);
        }
        self.reported = false;
    }

    fn smooth(&mut self, parameters: &Parameters) {
        let (span, gap) = (self.fresh.span, self.fresh.gap);
        let known = self.rates.len();
        self.rates.resize(known.max(self.fresh.offered.len()), 0.0);
        let counts = self.fresh.offered.iter().copied();
        let counts = counts.chain(std::iter::repeat(0.0));
        for (rate, count) in self.rates.iter_mut().zip(counts) {
            // After a silence the old rate is no evidence of the present one.
            *rate = if gap >= parameters.silent_after() {
                count / span.as_secs_f64()
            } else {
                smoothed(*rate, count, span)
            };
        }
    }

    pub(super) fn forget_keys(&mut self, keys: &HashSet<KeyId>) {
        self.staged.retain(|(key, ..)| !keys.contains(key));
        for column in [
            &mut self.rates,
            &mut self.fresh.offered,
            &mut self.fresh.passed,
        ] {
            for key in keys {
                if let Some(value) = column.get_mut(key.index()) {
                    *value = 0.0;
                }
            }
        }
    }

    pub(super) fn clear_fresh(&mut self) {
        if self.fresh.span.is_zero() {
            return;
        }
        self.fresh.span = Duration::ZERO;
        self.fresh.gap = Duration::ZERO;
        self.fresh.offered.fill(0.0);
        self.fresh.passed.fill(0.0);
    }

    pub(crate) fn has_name_conflict(&self, now: MonoTime) -> bool {
        self.conflict_at
            .is_some_and(|at| now.since(at) < CONFLICT_SHOWN)
    }

    /// The share of its last known traffic that counts: 0..=1.
    pub(crate) fn presence(&self) -> f64 {
        presence(self.silent_for)
    }

    pub(crate) fn is_silent(&self, parameters: &Parameters) -> bool {
        self.silent_for >= parameters.silent_after()
    }

    /// The offered requests/s of a key, smoothed; the last known ones while it is silent.
    pub(crate) fn rate(&self, key: KeyId) -> f64 {
        of_key(&self.rates, key)
    }

    /// The requests of a key that were offered in the reports since the last tick.
    pub(crate) fn offered(&self, key: KeyId) -> f64 {
        of_key(&self.fresh.offered, key)
    }

    /// The part of these requests that passed, or would have in enforce.
    pub(crate) fn passed(&self, key: KeyId) -> f64 {
        of_key(&self.fresh.passed, key)
    }
}

fn of_key(column: &[f64], key: KeyId) -> f64 {
    column.get(key.index()).copied().unwrap_or_default()
}
