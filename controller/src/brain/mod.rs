//! The brain: reports, policy and time in, directives out. Pure: it decides, the files around it only carry.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::names::{Bucket, Key};
use plimsoll_core::directive::{Board, Epoch, Message};
use plimsoll_core::kill::drill::Timing;
use plimsoll_core::exchange::{Parent, StreamId, StreamRejected};
use plimsoll_core::kill::Kills;
use plimsoll_core::law::Parameters;
use plimsoll_policy::Policy;
use plimsoll_core::quantity::Rate;
use plimsoll_core::report::{Echo, Entered, InstanceId, Report, Role, Tally};
use plimsoll_core::exchange::sessions::{Head, Sessions};
use plimsoll_core::quantity::MonoTime;

use crate::state::Durable;
use crate::aggregators::liveness::Feeds;
use crate::history::History;
use self::keys::Keys;
use crate::bucket::{Protected, Scratch, Tick};
use crate::aggregators::takeover::Reign;
use crate::rollout::Rollout;
use crate::aggregators::{Place, Sources};
use saves::Saves;

pub use hold::{AckError, Held, Offer};
pub use learning::{Answer, Answers, Changes};
pub use rollout::RolloutError;

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
    /// The kill generations as aggregators are told them.
    kills: Kills,
    timing: Timing,
    /// The time of day at the last tick, in seconds since 1970.
    unix_s: Option<i64>,
    parameters: Parameters,
    roster: Sessions,
    sources: Sources,
    reign: Reign,
    keys: Keys,
    buckets: Vec<Protected>,
    by_name: HashMap<Bucket, usize>,
    /// What each aggregator is told.
    boards: BTreeMap<Place, Board>,
    scratch: Scratch,
    history: History,
    answers: Answers,
    rollout: Rollout,
    feeds: Feeds,
    held: Option<Held>,
    /// Numbers what changed outside a tick.
    news: u64,
    ticked: MonoTime,
    figures: Figures,
}

impl Brain {
    /// A controller process that begins its next epoch. Nothing is sent before the state it starts from is saved.
    #[must_use]
    pub fn new(
        now: MonoTime,
        instance: InstanceId,
        mut durable: Durable,
        policy: Arc<Policy>,
        parameters: Parameters,
    ) -> Self {
        durable.epoch = Epoch(durable.epoch.0.saturating_add(1));
        let rollout = Rollout::restored(&durable);
        let feeds = Feeds::new(now, parameters.feed_stale, durable.children.iter().cloned());
        let mut brain = Self {
            parameters,
            sources: Sources::default(),
            reign: Reign::new(now),
            policy: Arc::clone(&policy),
            durable,
            saves: Saves::default(),
            kills: Kills::default(),
            timing: Timing::default(),
            unix_s: None,
            roster: Sessions::new(instance, CHILDREN_MAX, KEYS_MAX),
            keys: Keys::new(now, KEYS_MAX),
            buckets: Vec::new(),
            by_name: HashMap::new(),
            boards: BTreeMap::new(),
            scratch: Scratch::default(),
            history: History::default(),
            answers: Answers::new(),
            rollout,
            feeds,
            held: None,
            news: 0,
            ticked: now,
            figures: Figures::default(),
        };
        brain.on_policy(policy);
        brain
    }

    /// A new policy is in force.
    pub fn on_policy(&mut self, policy: Arc<Policy>) {
        let before = self.durable.clone();
        self.held = None;
        self.durable.on_policy(&policy);
        self.rollout.settle(&mut self.durable, &self.policy, self.ticked);
        self.rollout.on_policy(&policy);
        self.policy = policy;
        let exact: Vec<Bucket> = self.policy.exact_buckets().map(|(bucket, _)| bucket.clone()).collect();
        for bucket in exact {
            self.protect(&bucket);
        }
        self.history.on_policy(&self.policy);
        self.forget_answers();
        for bucket in &mut self.buckets {
            let limit = learning::limit(&self.policy, &self.history, &self.answers, bucket.name());
            bucket.configure(&self.policy, limit);
        }
        self.keys.take_new();
        for (id, key) in self.keys.iter() {
            if let Some(bucket) = self.by_name.get(&key.bucket).and_then(|at| self.buckets.get_mut(*at)) {
                bucket.add_key(id, &key.tenant);
            }
        }
        self.welcome();
        self.note_change(before != self.durable || self.saves.is_untouched());
        for child in self.roster.iter_mut() {
            self.policy.exact_buckets().for_each(|(bucket, _)| child.wants(bucket));
        }
    }

    /// Applies the law: to be called once a [tick](Parameters::tick). `unix_s` is the time of day in seconds since
    /// 1970, by which boosts and kills with an end are over.
    pub fn on_tick(&mut self, now: MonoTime, unix_s: i64) {
        let since_last = now.since(self.ticked);
        self.ticked = now;
        self.on_time(unix_s);
        self.sources.on_tick(since_last, &self.parameters);
        self.sample(now, unix_s);
        self.forget(now);
        self.forget_keys(now);
        self.roster.prune(now);
        self.reign.on_tick(now, &mut self.sources, &self.parameters);
        self.apply_law(now, since_last, unix_s);
        self.sources.clear_fresh();
        self.roll_out(now, unix_s);
        self.post();
    }

    /// Forgets aggregators of which nothing counts any more, or that never came back.
    fn forget(&mut self, now: MonoTime) {
        let keep = self.buckets.iter().any(Protected::is_never_released);
        let mut gone = self.sources.forget(keep);
        if !keep && self.reign.has_waited(now, &self.parameters) {
            let missing = self.durable.children.iter().filter(|place| self.sources.get(place).is_none());
            gone.extend(missing.cloned().collect::<Vec<_>>());
        }
        for place in gone {
            self.drop_place(&place);
        }
    }

    /// Forgets an aggregator of which nothing counts any more. Its feed is found stale all the same.
    fn drop_place(&mut self, place: &Place) {
        self.buckets.iter_mut().for_each(|bucket| bucket.forget(place));
        self.boards.remove(place);
        let changed = self.durable.children.remove(place);
        self.note_change(changed);
    }

    fn apply_law(&mut self, now: MonoTime, since_last: Duration, unix_s: i64) {
        let tick = Tick {
            since_last,
            unix_s,
            sources: &self.sources,
            policy: &self.policy,
            parameters: &self.parameters,
            leading: self.reign.is_leading(),
        };
        let expected = self.expected();
        let set_aside = self.reign.set_aside(now, &self.parameters);
        let missing = self.durable.children.iter().any(|place| self.sources.get(place).is_none());
        for bucket in &mut self.buckets {
            bucket.welcome(&self.sources, expected);
            let limit = bucket.limit().per_second().map_or(0.0, Rate::per_second);
            // What is never released is not released by a restart either.
            let set_aside = if missing && bucket.is_never_released() { 1.0 } else { set_aside };
            let within = Reign::within(bucket.name(), limit, &self.sources, set_aside);
            bucket.on_tick(&tick, within, &mut self.scratch);
        }
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
    pub const fn roster(&self) -> &Sessions {
        &self.roster
    }

    /// Every bucket known.
    #[must_use]
    pub fn buckets(&self) -> &[Protected] {
        &self.buckets
    }

    /// Every key and what was counted of it in all.
    pub fn totals(&self) -> impl Iterator<Item = (&Key, Tally)> {
        self.keys.totals()
    }

    /// Whether rates are being sent.
    #[must_use]
    pub const fn is_leading(&self) -> bool {
        self.reign.is_leading()
    }

    /// What happened that nobody should have to guess.
    #[must_use]
    pub const fn figures(&self) -> Figures {
        self.figures
    }

    /// The bucket becomes known, if there is room; true if it is.
    fn protect(&mut self, bucket: &Bucket) -> bool {
        if self.by_name.contains_key(bucket) {
            return true;
        }
        if self.buckets.len() >= BUCKETS_MAX {
            self.figures.homeless += 1;
            return false;
        }
        let mut protected = Protected::new(bucket.clone());
        let limit = learning::limit(&self.policy, &self.history, &self.answers, bucket);
        protected.configure(&self.policy, limit);
        self.keys.declare(bucket);
        self.by_name.insert(bucket.clone(), self.buckets.len());
        self.buckets.push(protected);
        self.news += 1;
        true
    }

    /// Tells the buckets of their new keys. Linear in what is new.
    fn introduce_keys(&mut self) {
        for (id, key) in self.keys.take_new() {
            if let Some(bucket) = self.by_name.get(&key.bucket).and_then(|at| self.buckets.get_mut(*at)) {
                bucket.add_key(id, &key.tenant);
            }
        }
    }

    /// Forgets tenants that nobody lists and that had no traffic for long.
    fn forget_keys(&mut self, now: MonoTime) {
        let (policy, sources) = (&self.policy, &self.sources);
        let gone = self.keys.on_tick(now, |id, key| {
            !policy.is_listed(&key.tenant) && !sources.counts_on(id, &self.parameters)
        });
        for (bucket, keys) in gone {
            self.sources.forget_keys(&keys);
            if let Some(bucket) = self.by_name.get(&bucket).and_then(|at| self.buckets.get_mut(*at)) {
                bucket.remove_keys(&keys);
            }
        }
    }

    /// Brings what aggregators are told in line with what holds now.
    fn post(&mut self) {
        self.news += 1;
        self.settle_kills();
        for (place, board) in &mut self.boards {
            for bucket in &self.buckets {
                board.apply(&bucket.directive(place, &self.policy, &self.durable));
            }
        }
    }

    /// An aggregator came or went, or limits changed: those that have nothing to live on yet divide a limit among more, or
    /// fewer, or another one; and a limit of zero denies at once.
    fn welcome(&mut self) {
        let expected = self.expected();
        for bucket in &mut self.buckets {
            bucket.welcome(&self.sources, expected);
        }
        self.post();
    }

    /// Among how many a limit is divided as long as nobody knows where the traffic is.
    fn expected(&self) -> usize {
        self.durable.children.len().max(self.sources.len())
    }

    fn greet(&mut self, now: MonoTime, stream: StreamId, report: &Report) -> Result<(), StreamRejected> {
        let identity = report.identity.clone().ok_or(StreamRejected::Greeting)?;
        if identity.role != Role::Aggregator {
            return Err(StreamRejected::WrongTier(
                "a controller takes aggregators; connect the client to an aggregator of its zone (port 7410)",
            ));
        }
        let (place, instance) = ((identity.zone.clone(), identity.name.clone()), identity.instance);
        if self.sources.len() >= CHILDREN_MAX && self.sources.get(&place).is_none() {
            return Err(StreamRejected::Full(CHILDREN_MAX));
        }
        let child = self.roster.open(now, stream, identity)?;
        self.policy.exact_buckets().for_each(|(bucket, _)| child.wants(bucket));
        if let Some(replaced) = self.sources.greet(now, place.clone(), instance, report.holds.clone()) {
            self.roster.remove(replaced);
            self.buckets.iter_mut().for_each(|bucket| bucket.replace(&place));
        }
        self.boards.entry(place.clone()).or_default();
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
        self.note_late(entered);
        self.introduce_keys();
        self.sources.enter(place, report, entered);
    }
}

mod held_policy;
mod keys;
mod kill;
mod learning;
mod parent;
mod pending_saves;
mod rollout;
#[cfg(test)]
mod tests;
