//! The subscription: the child side of a limiter. It reports counts to the aggregators and
//! publishes their directives to the request path. Pure: the feed carries its messages and calls it
//! every 10 ms.
//!
//! Each concern is its own type, and the subscription sequences them:
//! * [`Sessions`]: one conversation per aggregator, with what was reported and received on it.
//! * [`Routing`]: with several aggregators, which of them owns which bucket.
//! * [`DirectiveCache`]: the current directives, and the part that is saved for the next process.
//! * [`Enforcement`]: kill switches, and whether refusals are carried out here.
//! * [`Publisher`]: directive words and guards for the request path.
//! * [`Refusals`]: refusals per bucket and reason, for metrics.
//! * [`EvidenceCollector`]: outcomes per bucket, for the gates of rollouts.

pub(crate) mod assignment;
mod directive_cache;
mod enforcement;
mod evidence;
mod exchange;
mod names;
mod publisher;
mod refusals;
mod routing;
mod sessions;
#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::decision::{Mode, Reason};
use plimsoll_core::directive::{Directives, Posted, Terms};
use plimsoll_core::exchange::other_controllers::OtherControllers;
use plimsoll_core::names::{Bucket, DEFAULT_TENANT, Key, KeyId};
use plimsoll_core::quantity::{MonoTime, Rate};
use plimsoll_core::report::{Counts, Identity};

use crate::hot::directive_word::DirectiveWord;
use crate::hot::interner::key_registry::KeyRegistry;
use crate::hot::table::Table;
use crate::setup::SetupProblem;
use crate::subscription::assignment::{Assignment, Change};

use directive_cache::{DirectiveCache, Version};
pub use enforcement::CanaryBy;
use enforcement::Enforcement;
pub(crate) use evidence::BucketResponses;
use evidence::EvidenceCollector;
use publisher::{Published, Publisher};
use refusals::Refusals;
pub(crate) use refusals::Refused;
use routing::Routing;
use sessions::{FirstAnswer, ONLY, REPORT_INTERVAL_DEFAULT, Sessions};

/// A limiter's side of the control plane: a [`Child`](plimsoll_core::exchange::Child) of its zone's
/// aggregators.
///
/// The [`Feed`](crate::Feed) carries its messages over a stream. A caller that carries them in some other way
/// gets one from [`Limiter::without_transport`](crate::Limiter::without_transport).
pub struct Subscription {
    identity: Identity,
    table: Arc<Table>,
    buckets: Vec<Bucket>,
    registry: KeyRegistry,
    sessions: Sessions,
    /// With several aggregators; `None` with only one.
    routing: Option<Routing>,
    /// Until an aggregator has answered; `None` also without one to wait for.
    first_answer: Option<FirstAnswer>,
    pub(crate) directives: DirectiveCache,
    pub(crate) enforcement: Enforcement,
    publisher: Publisher,
    evidence: EvidenceCollector,
    refusals: Refusals,
    /// By bucket: the requests decided before its policy was known; `None` while it is not.
    decided_before: Vec<Option<u64>>,
    /// The hash of the latest catalogue of tenants.
    catalogue: Option<u64>,
    /// Stale messages, and directives of an earlier epoch than that of their bucket.
    pub(crate) rejected: u64,
    /// Other controllers at the epoch of the leader.
    pub(crate) other_controllers: OtherControllers,
}

// === Set-up ===

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl Subscription {
    pub(crate) fn new(identity: Identity, table: Arc<Table>) -> Self {
        Self {
            enforcement: Enforcement::new(identity.name.clone()),
            identity,
            table,
            buckets: Vec::new(),
            registry: KeyRegistry::default(),
            sessions: Sessions::single(),
            routing: None,
            first_answer: None,
            directives: DirectiveCache::default(),
            publisher: Publisher::default(),
            evidence: EvidenceCollector::default(),
            refusals: Refusals::default(),
            decided_before: Vec::new(),
            catalogue: None,
            rejected: 0,
            other_controllers: OtherControllers::default(),
        }
    }

    /// Prepares for several aggregators, which are listed later. A lost one keeps its buckets for
    /// `failover_delay`.
    pub(crate) fn use_several_aggregators(&mut self, failover_delay: Duration) {
        let mut routing = Routing::new(failover_delay);
        self.buckets
            .iter()
            .for_each(|bucket| routing.add_bucket(bucket));
        self.routing = Some(routing);
        self.sessions = Sessions::default();
    }

    /// Makes it a setup problem if no aggregator answers. `addresses` names them.
    pub(crate) fn expect_answer(&mut self, addresses: String) {
        self.first_answer = Some(FirstAnswer::from(addresses));
    }

    /// Sets the unit of a canary's share, before the first directive.
    pub(crate) fn divide_canary(&mut self, by: CanaryBy) {
        self.enforcement.canary_by = by;
        if by == CanaryBy::Key {
            self.table.responses.divide_by_key(self.table.keys_max());
        }
    }

    /// Counts admitted requests without a recorded response as unobserved in evidence.
    pub(crate) fn count_unobserved(&mut self) {
        self.evidence.surplus.get_or_insert_default();
    }

    /// Lets at most `rate` requests/s of a bucket pass here until something is directed for it.
    pub(crate) fn set_cold_rate(&mut self, bucket: Bucket, rate: Rate) {
        self.publisher.cold_rates.insert(bucket, rate);
        self.sync_names();
        self.publish_all();
    }

    pub(crate) fn restore(&mut self, saved: Directives) {
        self.enforcement
            .kills
            .merge(saved.kills.fleet, &saved.kills.buckets);
        self.directives.restore(saved, &self.enforcement.kills);
        self.sessions.raise_epoch(self.directives.epoch());
        self.sync_names();
        self.publish_all();
    }

    /// Sets the kill switch of this process, which holds against any directive. Returns true if it
    /// changed.
    pub(crate) fn observe(&mut self, only: bool) -> bool {
        let has_changed = std::mem::replace(&mut self.enforcement.observes, only) != only;
        if has_changed {
            self.publish_all();
        }
        has_changed
    }
}

// === Time ===

impl Subscription {
    /// Refills the guards and moves buckets between aggregators. To be called about every 10 ms, off the
    /// request path.
    pub fn on_tick(&mut self, now: MonoTime) {
        self.publisher.set_time(now);
        // Directives may wait for names that the request path is about to use first, and in a
        // canary that is divided by key each new one has its own side.
        if self.directives.is_restored
            || !self.publisher.cold_rates.is_empty()
            || self.publisher.is_divided()
        {
            self.sync_names();
        }
        // Every report measures the offered rates. Without reports, or with several aggregators, the tick
        // does it.
        let interval = self.sessions.report_interval();
        let due = if self.routing.is_some() {
            interval
        } else {
            interval * 2
        };
        if self
            .publisher
            .guards
            .measured
            .is_some_and(|at| now.since(at) >= due)
        {
            self.sync_names();
            self.measure(now);
        }
        self.publisher.on_tick(now, &self.table);
        self.check_assignment(now);
        self.check_first_answer(now);
    }

    fn check_first_answer(&mut self, now: MonoTime) {
        let Some(waiting) = &mut self.first_answer else {
            return;
        };
        if !waiting.falls_due(now) {
            return;
        }
        let others = match self.table.before_policy {
            DirectiveWord::NOTHING => "admitted",
            _ => "refused, by before_policy",
        };
        let meanwhile = if self.directives.is_restored {
            "the cached directives of an earlier process apply".to_owned()
        } else if self.publisher.cold_rates.is_empty() {
            format!("everything is {others}")
        } else {
            format!("cold_rps limits its buckets, and everything else is {others}")
        };
        self.table.problems.raise(SetupProblem::NeverConnected {
            addresses: waiting.addresses.clone(),
            meanwhile,
        });
    }

    /// Ends the wait for the first answer.
    fn on_answer(&mut self) {
        if let Some(FirstAnswer { addresses, .. }) = self.first_answer.take() {
            self.table.problems.clear(&SetupProblem::NeverConnected {
                addresses,
                meanwhile: String::new(),
            });
        }
    }

    fn measure(&mut self, now: MonoTime) {
        let (table, refusals) = (&self.table, &mut self.refusals);
        let on_counts = |place: &_, counts| refusals.add(table, place, counts);
        self.publisher
            .guards
            .measure(now, table, self.registry.places(), on_counts);
        self.check_admissions(now);
    }

    fn add_refusals(&mut self) {
        for place in self.registry.places() {
            self.refusals
                .add(&self.table, place, self.table.counters.counts(place.key));
        }
    }

    fn check_assignment(&mut self, now: MonoTime) {
        if !self
            .routing
            .as_mut()
            .is_some_and(|routing| routing.take_check_turn(now))
        {
            return;
        }
        self.sync_names();
        let Some(routing) = &mut self.routing else {
            return;
        };
        let changes = routing.check(now, &self.sessions, &self.buckets, &self.directives);
        for change in &changes {
            if let Change::Moved { bucket, from, to } = change {
                for key in routing.keys(*bucket) {
                    let name = self.registry.keys()[*key as usize].clone();
                    self.sessions.move_key(*key, name, *from, *to);
                }
            }
        }
        for change in changes {
            let (Change::Moved { bucket, .. } | Change::RatiosApply(bucket)) = change;
            self.apply_received(bucket);
        }
    }
}

// === Publication ===

impl Subscription {
    fn publish_all(&mut self) {
        (0..self.buckets.len()).for_each(|id| self.publish(id));
    }

    fn publish(&mut self, id: usize) {
        // Nothing is measured before the first stream, so all refusals of a cold start may be new.
        if self
            .table
            .default_key(id as u32)
            .is_some_and(|key| self.table.own_directive(key).is_cold())
        {
            self.add_refusals();
        }
        if self.directives.get(&self.buckets[id]).is_some() {
            self.note_policy(id);
        }
        let bucket = &self.buckets[id];
        let posted = self.directives.get(bucket);
        self.check_policy(bucket, posted.map(Posted::terms));
        let published = Published {
            id: id as u32,
            bucket,
            stance: posted.map(|posted| self.enforcement.stance(bucket, posted)),
            enforcement: &self.enforcement,
            registry: &self.registry,
        };
        self.publisher.publish(&self.table, published);
    }

    /// Raises or clears the setup problems of a bucket that no policy names, and of its quotas.
    fn check_policy(&self, bucket: &Bucket, terms: Option<&Terms>) {
        let problems = &self.table.problems;
        let unlisted = terms.and_then(|terms| terms.unlisted.as_ref());
        let unknown = SetupProblem::UnknownBucket {
            bucket: bucket.to_string(),
            nearest: unlisted.and_then(|unlisted| Some(unlisted.nearest()?.to_owned())),
        };
        problems.set(unknown, unlisted.is_some());
        let quotas = terms.and_then(|terms| terms.quotas.as_ref());
        let has_quotas = quotas.is_some_and(|quotas| !quotas.is_empty());
        let bucket = bucket.to_string();
        if !has_quotas {
            problems.clear(&SetupProblem::QuotasInMemory {
                bucket: bucket.clone(),
            });
        }
        problems.set(
            SetupProblem::QuotasWithoutStore { bucket },
            has_quotas && self.table.layered.store().is_none(),
        );
    }

    fn publish_key(&mut self, id: u32) {
        let key = &self.registry.keys()[id as usize];
        self.publisher.set_class(&self.table, id, key);
        if let Some(posted) = self.directives.get(&key.bucket) {
            raise_unknown_plan(&self.table, posted, key);
            let stance = self.enforcement.stance(&key.bucket, posted);
            self.publisher.publish_key(&self.table, id, key, &stance);
        }
    }
}

/// Raises the setup problem if the policy does not have the plan of a key, which is the class `default` then.
fn raise_unknown_plan(table: &Table, posted: &Posted, key: &Key) {
    let Some(plan) = key.tenant.plan() else {
        return;
    };
    // A bucket without a policy has no entries at all.
    let is_covered = posted.own(DEFAULT_TENANT).is_some();
    if is_covered && posted.entry_of(key.tenant.as_str()) == DEFAULT_TENANT {
        table.problems.raise(SetupProblem::UnknownPlan {
            plan: plan.to_owned(),
        });
    }
}

// === Queries, most of them for metrics ===

impl Subscription {
    /// Returns the decisions on each key so far.
    pub fn counts(&mut self) -> BTreeMap<Key, Counts> {
        self.sync_names();
        let all = self.registry.keys().iter().zip((0..).map(KeyId));
        all.map(|(key, id)| (key.clone(), self.registry.counts(&self.table, id)))
            .collect()
    }

    pub(crate) fn unreported(&mut self) -> u64 {
        self.sync_names();
        let decided = self
            .registry
            .places()
            .iter()
            .map(|place| self.table.counters.counts(place.key).asked());
        decided
            .sum::<u64>()
            .saturating_sub(self.sessions.acknowledged())
    }

    pub(crate) fn refusals(&mut self) -> Vec<(Bucket, [Refused; Reason::ALL.len()])> {
        self.sync_names();
        self.add_refusals();
        self.buckets
            .iter()
            .cloned()
            .zip((0..).map(|id| self.refusals.of(&self.table, id)))
            .collect()
    }

    /// Returns how long ago the controller last counted a report of this zone, the waits of all
    /// hops included; `None` if it never did. Of several aggregators, the oldest among the owners
    /// of buckets.
    pub(crate) fn upstream_age(&self, now: MonoTime) -> Option<Duration> {
        self.sessions.upstream_age(now, |id| {
            self.routing
                .as_ref()
                .is_none_or(|routing| routing.assignment.owns_any(id))
        })
    }

    /// Returns the mode of a bucket on this instance, shadow while killed; `None` for a bucket that no policy names,
    /// and before the first directive, unless the service itself has set a rate for that time.
    pub(crate) fn mode_of(&self, bucket: &Bucket) -> Option<Mode> {
        match self.directives.get(bucket) {
            Some(posted) if posted.terms().unlisted.is_some() => None,
            Some(posted) => Some(self.enforcement.mode(bucket, posted.terms())),
            None => {
                let has_rate = self.publisher.cold_rates.contains_key(bucket);
                has_rate.then(|| self.enforcement.mode_without_terms(bucket))
            }
        }
    }

    pub(crate) fn posted(&self) -> impl Iterator<Item = (&Bucket, Option<&Posted>)> {
        self.buckets
            .iter()
            .map(|bucket| (bucket, self.directives.get(bucket)))
    }

    pub(crate) fn responses(&self) -> Vec<BucketResponses> {
        evidence::responses(&self.table, &self.buckets)
    }

    pub(crate) fn assignment(&self) -> Option<&Assignment> {
        Some(&self.routing.as_ref()?.assignment)
    }
}

// === Persistence ===

impl Subscription {
    pub(crate) fn unsaved(&self) -> Option<(Version, Directives)> {
        let version = self.directives.unsaved(&self.enforcement.kills)?;
        Some((
            version,
            self.directives
                .snapshot(&self.buckets, &self.enforcement.kills),
        ))
    }

    pub(crate) fn unsaved_kills(&self) -> Option<u64> {
        self.directives.unsaved_kills(&self.enforcement.kills)
    }
}
