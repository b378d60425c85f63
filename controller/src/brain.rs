//! The brain: reports, policy and time in, directives out. Pure: it decides, the files around it only carry.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::bucket::{Bucket, Key, KeyTable, Tenant};
use plimsoll_core::directive::{Board, Directives, Epoch};
use plimsoll_core::exchange::{Parent, Refused, StreamId};
use plimsoll_core::kill::JUMP_MAX;
use plimsoll_core::policy::Policy;
use plimsoll_core::report::{Echo, Entered, InstanceId, Report, Role, Tally};
use plimsoll_core::roster::{Head, Roster};
use plimsoll_core::time::MonoTime;

use crate::classes::Classes;
use crate::durable::Durable;
use crate::protected::Protected;
use crate::sources::{Place, Sources};

/// How often the law is applied.
pub const TICK: Duration = Duration::from_millis(500);
/// Aggregators at most, those who are away but remembered included.
const CHILDREN_MAX: usize = 1_000;
/// Keys told apart; tenants beyond it count as their bucket's default class.
const KEYS_MAX: usize = 1_000_000;
/// Buckets known, those that only a child asked for included.
const BUCKETS_MAX: usize = 10_000;

/// What happened that nobody should have to guess.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Requests given up because nobody can tell whether they were counted before.
    pub unconfirmed: u64,
    /// Keys and buckets for which there was no room.
    pub homeless: u64,
    /// Writes of the durable state that failed.
    pub saves_failed: u64,
}

/// One controller's state.
#[derive(Debug)]
pub struct Brain {
    policy: Arc<Policy>,
    durable: Durable,
    saves: Saves,
    roster: Roster,
    sources: Sources,
    keys: KeyTable,
    classes: Classes,
    totals: Vec<Tally>,
    buckets: Vec<Protected>,
    board: Board,
    ticked: MonoTime,
    figures: Figures,
}

/// Whether what was decided has been written down.
#[derive(Clone, Copy, Debug, Default)]
struct Saves {
    changed: u64,
    saved: u64,
    /// The last write failed: a full disk must not keep a kill from the fleet.
    failing: bool,
}

impl Brain {
    /// A controller process that begins its next epoch. Nothing is sent before the state it starts from is saved.
    #[must_use]
    pub fn new(now: MonoTime, instance: InstanceId, mut durable: Durable, policy: Arc<Policy>) -> Self {
        durable.epoch = Epoch(durable.epoch.0.saturating_add(1));
        let mut brain = Self {
            sources: Sources::new(now, durable.children.clone()),
            policy: Arc::clone(&policy),
            durable,
            saves: Saves::default(),
            roster: Roster::new(instance, CHILDREN_MAX, KEYS_MAX),
            keys: KeyTable::new(KEYS_MAX),
            classes: Classes::new(&policy),
            totals: Vec::new(),
            buckets: Vec::new(),
            board: Board::default(),
            ticked: now,
            figures: Figures::default(),
        };
        brain.on_policy(policy);
        brain
    }

    /// A new policy is in force.
    pub fn on_policy(&mut self, policy: Arc<Policy>) {
        let before = self.durable.clone();
        self.durable.on_policy(&policy);
        self.classes = Classes::new(&policy);
        self.policy = policy;
        let exact: Vec<Bucket> = self.policy.exact_buckets().map(|(bucket, _)| bucket.clone()).collect();
        for bucket in exact {
            self.protect(&bucket);
        }
        for bucket in &mut self.buckets {
            bucket.configure(&self.policy);
        }
        self.classes.assign(self.keys.keys(), &self.buckets);
        self.post();
        self.note_change(before != self.durable || self.saves.changed == 0);
        for child in self.roster.iter_mut() {
            self.policy.exact_buckets().for_each(|(bucket, _)| child.wants(bucket));
        }
    }

    /// Applies the law: to be called every [`TICK`].
    pub fn on_tick(&mut self, now: MonoTime) {
        let since_last = now.since(self.ticked);
        self.ticked = now;
        for gone in self.sources.on_tick(now, since_last) {
            let changed = self.durable.children.remove(&gone);
            self.note_change(changed);
        }
        self.roster.prune(now);
        let leading = self.sources.leads(now);
        self.classes.sum(&mut self.buckets, &self.sources);
        for bucket in &mut self.buckets {
            bucket.on_tick(since_last, leading);
        }
        self.post();
    }

    /// What must be written down, and under which number to report that it was.
    #[must_use]
    pub fn unsaved(&self) -> Option<(u64, Durable)> {
        (self.saves.saved < self.saves.changed).then(|| (self.saves.changed, self.durable.clone()))
    }

    /// The state with this number was written.
    pub fn on_saved(&mut self, number: u64) {
        self.saves.saved = self.saves.saved.max(number);
        self.saves.failing = false;
    }

    /// A write failed: directives go out all the same, it will be tried again.
    pub fn on_save_failed(&mut self) {
        self.saves.failing = true;
        self.figures.saves_failed += 1;
    }

    /// The policy in force.
    #[must_use]
    pub const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// What outlives a restart.
    #[must_use]
    pub const fn durable(&self) -> &Durable {
        &self.durable
    }

    /// The aggregators and what is known of their traffic.
    #[must_use]
    pub const fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Who is connected, and who is remembered.
    #[must_use]
    pub const fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Every bucket known.
    #[must_use]
    pub fn buckets(&self) -> &[Protected] {
        &self.buckets
    }

    /// Every key and what was counted of it in all.
    pub fn totals(&self) -> impl Iterator<Item = (&Key, Tally)> {
        self.keys.keys().iter().zip(self.totals.iter().copied())
    }

    /// The tenant class a tenant falls into: its own name where policy lists it, else the default class.
    #[must_use]
    pub fn class<'a>(&'a self, tenant: &'a Tenant) -> &'a Tenant {
        self.classes.class(tenant)
    }

    /// What happened that nobody should have to guess.
    #[must_use]
    pub const fn figures(&self) -> Figures {
        self.figures
    }

    fn note_change(&mut self, changed: bool) {
        self.saves.changed += u64::from(changed);
    }

    /// The bucket becomes known, if there is room; true if it is.
    fn protect(&mut self, bucket: &Bucket) -> bool {
        if self.board.get(bucket).is_some() {
            return true;
        }
        if self.buckets.len() >= BUCKETS_MAX {
            self.figures.homeless += 1;
            return false;
        }
        let mut protected = Protected::new(bucket.clone());
        protected.configure(&self.policy);
        self.keys.intern(&Key { bucket: bucket.clone(), tenant: Tenant::default_class() });
        self.board.apply(&protected.directive(&self.policy, &self.durable));
        self.buckets.push(protected);
        true
    }

    /// Brings the board in line with what holds now.
    fn post(&mut self) {
        for bucket in &self.buckets {
            self.board.apply(&bucket.directive(&self.policy, &self.durable));
        }
    }

    fn check_claims(&self, report: &Report) -> Result<(), Refused> {
        let claimed = report.epoch.map_or(0, |epoch| epoch.0);
        if claimed.saturating_sub(self.durable.epoch.0) > JUMP_MAX {
            return Err(Refused::EpochJump { claimed, own: self.durable.epoch.0 });
        }
        if !self.durable.kill.believes(report.kill) {
            return Err(Refused::KillJump { claimed: report.kill, own: self.durable.kill });
        }
        Ok(())
    }

    fn greet(&mut self, now: MonoTime, stream: StreamId, report: &Report) -> Result<(), Refused> {
        let identity = report.identity.clone().ok_or(Refused::Greeting)?;
        if identity.role != Role::Aggregator {
            return Err(Refused::WrongTier(
                "a controller takes aggregators; connect the client to an aggregator of its zone (port 7410)",
            ));
        }
        let (place, instance) = ((identity.zone.clone(), identity.name.clone()), identity.instance);
        if self.sources.len() >= CHILDREN_MAX && !self.sources.contains(&place) {
            return Err(Refused::Full(CHILDREN_MAX));
        }
        let child = self.roster.open(now, stream, identity)?;
        self.policy.exact_buckets().for_each(|(bucket, _)| child.wants(bucket));
        if let Some(replaced) = self.sources.greet(now, place.clone(), instance) {
            self.roster.remove(replaced);
        }
        let is_new = self.durable.children.insert(place);
        self.note_change(is_new);
        Ok(())
    }

    fn note_buckets(&mut self, stream: StreamId, report: &Report) {
        let of_keys = report.definitions.values().map(|definition| &definition.key.bucket);
        for bucket in report.asked.iter().chain(of_keys) {
            if self.protect(bucket)
                && let Some(child) = self.roster.by_stream(stream)
            {
                child.wants(bucket);
            }
        }
    }

    fn enter(&mut self, place: &Place, report: &Report, entered: &Entered) {
        self.figures.unconfirmed += entered.unconfirmed;
        self.figures.homeless += entered.homeless as u64;
        self.classes.assign(self.keys.keys(), &self.buckets);
        self.totals.resize(self.keys.keys().len(), Tally::ZERO);
        for entry in &entered.entries {
            if let Some(total) = entry.own.and_then(|own| self.totals.get_mut(own.index())) {
                *total = total.plus(entry.delta);
            }
        }
        self.sources.enter(place, report, entered);
    }
}

impl Parent for Brain {
    fn on_report(&mut self, now: MonoTime, stream: StreamId, report: Report) -> Result<bool, Refused> {
        self.check_claims(&report)?;
        let posted = self.board.version();
        if self.roster.by_stream(stream).is_none() {
            self.greet(now, stream, &report)?;
        } else if report.identity.is_some() {
            return Err(Refused::Greeting);
        }
        // Whatever reign a child has heard of, this one is later.
        if let Some(claimed) = report.epoch.filter(|claimed| *claimed > self.durable.epoch) {
            self.durable.epoch = Epoch(claimed.0.saturating_add(1));
            self.note_change(true);
        }
        if self.durable.on_kill(report.kill) {
            self.note_change(true);
            self.post();
        }
        self.note_buckets(stream, &report);
        let keys = &mut self.keys;
        let child = self.roster.by_stream(stream).ok_or(Refused::Unknown)?;
        child.heard = now;
        let instance = child.identity.instance;
        let place = (child.identity.zone.clone(), child.identity.name.clone());
        let entered = child.books.enter(now, &report, |key| {
            keys.intern(key)
                .or_else(|| keys.get(&Key { bucket: key.bucket.clone(), tenant: Tenant::default_class() }))
        })?;
        self.enter(&place, &report, &entered);
        if report.leaving {
            self.roster.remove(instance);
            self.sources.leave(&place);
            let changed = self.durable.children.remove(&place);
            self.note_change(changed);
        }
        Ok(self.saves.saved < self.saves.changed || self.board.version() != posted)
    }

    fn on_close(&mut self, now: MonoTime, stream: StreamId) {
        self.roster.close(now, stream);
    }

    fn directives(&mut self, now: MonoTime, stream: StreamId) -> Option<Directives> {
        // Written before it takes effect, so that no restart can take it back.
        if self.saves.saved < self.saves.changed && !self.saves.failing {
            return None;
        }
        let head = Head {
            epoch: Some(self.durable.epoch),
            kill: self.durable.kill,
            policy_hash: Some(self.policy.hash().as_u64()),
        };
        let child = self.roster.by_stream(stream)?;
        let covered = child.books.seq();
        let echo = Echo { covered, confirmed: covered };
        let message = child.next_message(now, head, &self.board, true, echo)?;
        let place = (child.identity.zone.clone(), child.identity.name.clone());
        let children = self.sources.children(&place);
        Some(Directives { upstream_age: Some(Duration::ZERO), children, ..message })
    }

    fn is_superseded(&self, stream: StreamId) -> bool {
        self.roster.is_superseded(stream)
    }
}

#[cfg(test)]
mod tests;
