//! The brain of a controller: takes reports, the policy and the time, and gives directives. Pure: it decides, and the
//! modules around it read files, serve ports and save.
//!
//! [`Brain`] itself only sequences its parts. Each part owns one concern:
//! * [`Policies`]: the policy in force, and the one that guardrails hold back.
//! * [`DurableState`] and [`PendingSaves`]: the state that outlives a restart, and how much of it is saved.
//! * [`Sessions`]: the streams of aggregators, and the counts already taken from each.
//! * [`Aggregators`], [`Takeover`] and [`Liveness`]: the rates of each aggregator and what it is sent, which of them are
//!   sent rates after a start, and which have not reported for too long.
//! * [`Keys`] and [`Buckets`]: the counts of each key, and the law of each bucket.
//! * [`Limits`]: limits that are learned or queried.
//! * [`KillRelay`]: the kill generations and drills that aggregators are sent.
//! * [`Rollouts`]: the evidence and the moves of rollout stages.

mod held_policy;
mod keys;
mod kill;
mod limits;
mod parent;
mod pending_saves;
mod rollout;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::directive::Epoch;
use plimsoll_core::exchange::sessions::Sessions;
use plimsoll_core::kill::KillRelay;
use plimsoll_core::law::Parameters;
use plimsoll_core::names::{Bucket, Key};
use plimsoll_core::quantity::{MonoTime, Rate};
use plimsoll_core::report::{InstanceId, Tally};
use plimsoll_policy::{Policy, PolicyHash};

use self::held_policy::{Policies, Review};
use self::keys::Keys;
use self::limits::Limits;
use self::pending_saves::PendingSaves;
use crate::aggregators::liveness::Liveness;
use crate::aggregators::takeover::Takeover;
use crate::aggregators::{Aggregators, Place};
use crate::bucket::{BucketState, Buckets, Tick};
use crate::rollout::Rollouts;
use crate::state::DurableState;

pub use self::held_policy::{AckError, HeldPolicy, Offer};
pub use self::limits::{LimitAnswer, LimitAnswers, LimitChange, LimitChanges};

/// Aggregators at most, including remembered ones that are away.
const CHILDREN_MAX: usize = 1_000;
/// Keys at most. Tenants beyond it count as the class `default` of their bucket.
const KEYS_MAX: usize = 1_000_000;

/// Loss and error counters, exported as metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests given up because a parent failed before it confirmed them: they may have been counted already.
    pub unconfirmed: u64,
    /// Keys and buckets for which there was no room.
    pub rejected: u64,
    /// Failed saves of the durable state.
    pub saves_failed: u64,
}

/// One controller's state.
#[derive(Debug)]
pub struct Brain {
    policies: Policies,
    durable: DurableState,
    pending_saves: PendingSaves,
    kills: KillRelay,
    last_tick: LastTick,
    parameters: Parameters,
    sessions: Sessions,
    aggregators: Aggregators,
    takeover: Takeover,
    liveness: Liveness,
    keys: Keys,
    buckets: Buckets,
    limits: Limits,
    rollouts: Rollouts,
}

/// The time of the last tick.
#[derive(Clone, Copy, Debug)]
struct LastTick {
    at: MonoTime,
    /// The time of day in seconds since 1970; unknown before the first tick.
    unix_s: Option<i64>,
}

// === impl Brain ===

impl Brain {
    /// The brain of a controller process that begins the next epoch. Nothing is sent before the new epoch is saved.
    #[must_use]
    pub fn new(
        now: MonoTime,
        instance: InstanceId,
        mut durable: DurableState,
        policy: Arc<Policy>,
        parameters: Parameters,
    ) -> Self {
        durable.epoch = Epoch(durable.epoch.0.saturating_add(1));
        let rollouts = Rollouts::restored(&durable);
        let liveness = Liveness::new(now, parameters.feed_stale, durable.children.iter().cloned());
        let mut brain = Self {
            policies: Policies::new(Arc::clone(&policy)),
            durable,
            pending_saves: PendingSaves::default(),
            kills: KillRelay::default(),
            last_tick: LastTick { at: now, unix_s: None },
            parameters,
            sessions: Sessions::new(instance, CHILDREN_MAX, KEYS_MAX),
            aggregators: Aggregators::default(),
            takeover: Takeover::new(now),
            liveness,
            keys: Keys::new(now, KEYS_MAX),
            buckets: Buckets::default(),
            limits: Limits::default(),
            rollouts,
        };
        brain.on_policy(policy);
        brain
    }

    /// Puts a policy in force, or holds it back if guardrails are on and a difference is drastic.
    pub fn offer(&mut self, policy: Arc<Policy>) -> Offer {
        let before = self.durable.clone();
        let offer = match self.policies.review(&policy) {
            Review::Accepted => {
                self.on_policy(policy);
                return Offer::Taken;
            }
            Review::Recalled => {
                self.policies.drop_held();
                self.durable.on_recall(&policy);
                Offer::Taken
            }
            Review::Drastic(held) => {
                self.durable.on_held(&policy, self.policies.in_force());
                self.policies.hold(held);
                Offer::Held
            }
        };
        self.close_ended_stages();
        self.pending_saves.note_change(before != self.durable);
        self.post();
        offer
    }

    /// Puts the policy that is held back in force, because an operator acknowledges it by its hash.
    ///
    /// # Errors
    /// If no policy is held back, or another one.
    pub fn acknowledge(&mut self, hash: &str) -> Result<PolicyHash, AckError> {
        let policy = self.policies.acknowledged(hash)?;
        let hash = policy.hash();
        self.on_policy(policy);
        Ok(hash)
    }

    /// Puts a policy in force.
    pub fn on_policy(&mut self, policy: Arc<Policy>) {
        let before = self.durable.clone();
        self.durable.on_policy(&policy);
        self.close_ended_stages();
        self.rollouts.on_policy(&policy);
        self.policies.replace(Arc::clone(&policy));
        for (bucket, _) in policy.exact_buckets() {
            self.ensure_bucket(bucket);
        }
        self.limits.on_policy(&policy);
        for bucket in self.buckets.iter_mut() {
            let limit = self.limits.of(&policy, bucket.name());
            bucket.configure(&policy, limit);
        }
        // Every key is added again below, new ones included.
        self.keys.take_new();
        for (id, key) in self.keys.iter() {
            if let Some(bucket) = self.buckets.get_mut(&key.bucket) {
                bucket.add_key(id, &key.tenant);
            }
        }
        self.assign_holds();
        self.pending_saves.note_change(before != self.durable || self.pending_saves.is_untouched());
        for child in self.sessions.iter_mut() {
            policy.exact_buckets().for_each(|(bucket, _)| child.wants(bucket));
        }
    }

    /// Applies the law. Must be called once per [tick](Parameters::tick). `unix_s` is the time of day in seconds since
    /// 1970, by which boosts and kills expire.
    pub fn on_tick(&mut self, now: MonoTime, unix_s: i64) {
        let since_last = now.since(self.last_tick.at);
        self.last_tick = LastTick { at: now, unix_s: Some(unix_s) };
        self.on_time(unix_s);
        self.aggregators.on_tick(since_last, &self.parameters);
        self.sample_minute(now, unix_s);
        self.remove_absent_aggregators(now);
        self.evict_keys(now);
        self.sessions.prune(now);
        self.takeover.on_tick(now, &mut self.aggregators, &self.parameters);
        self.apply_law(now, since_last, unix_s);
        self.aggregators.clear_fresh();
        self.tick_rollouts(now, unix_s);
        self.post();
    }

    /// Removes aggregators whose share is released, and aggregators that did not come back after the start.
    fn remove_absent_aggregators(&mut self, now: MonoTime) {
        let kept = self.buckets.as_slice().iter().any(BucketState::is_never_released);
        let mut gone = self.aggregators.remove_absent(kept);
        if !kept && self.takeover.has_waited(now, &self.parameters) {
            let missing = self.durable.children.iter().filter(|place| !self.aggregators.contains(place));
            gone.extend(missing.cloned().collect::<Vec<_>>());
        }
        for place in gone {
            self.remove_aggregator(&place);
        }
    }

    /// Removes the traces of an aggregator, except its liveness: a zone that is gone without a farewell becomes stale.
    fn remove_aggregator(&mut self, place: &Place) {
        self.buckets.iter_mut().for_each(|bucket| bucket.remove_aggregator(place));
        let changed = self.durable.children.remove(place);
        self.pending_saves.note_change(changed);
    }

    fn apply_law(&mut self, now: MonoTime, since_last: Duration, unix_s: i64) {
        let tick = Tick {
            since_last,
            unix_s,
            aggregators: &self.aggregators,
            policy: self.policies.in_force(),
            parameters: &self.parameters,
            leading: self.takeover.is_leading(),
        };
        let expected = self.expected_aggregators();
        let reserved_share = self.takeover.reserved_share(now, &self.parameters);
        let any_missing = self.durable.children.iter().any(|place| !self.aggregators.contains(place));
        self.buckets.each_with_scratch(|bucket, scratch| {
            bucket.assign_holds(tick.aggregators, expected);
            let limit = bucket.limit().per_second().map_or(0.0, Rate::per_second);
            // A share that is never released is not released by a restart of the controller either.
            let reserved_share = if any_missing && bucket.is_never_released() { 1.0 } else { reserved_share };
            let divisible = Takeover::divisible(bucket.name(), limit, tick.aggregators, reserved_share);
            bucket.on_tick(&tick, divisible, scratch);
        });
    }

    /// Makes a bucket known. Returns false if there is no room for it.
    fn ensure_bucket(&mut self, name: &Bucket) -> bool {
        if self.buckets.contains(name) {
            return true;
        }
        let policy = self.policies.in_force();
        let limit = self.limits.of(policy, name);
        let Some(bucket) = self.buckets.add(name) else { return false };
        bucket.configure(policy, limit);
        self.keys.declare(name);
        true
    }

    /// Adds new keys to their buckets. Linear in the new keys.
    fn introduce_keys(&mut self) {
        for (id, key) in self.keys.take_new() {
            if let Some(bucket) = self.buckets.get_mut(&key.bucket) {
                bucket.add_key(id, &key.tenant);
            }
        }
    }

    /// Evicts idle keys of tenants that the policy does not list.
    fn evict_keys(&mut self, now: MonoTime) {
        let (policy, aggregators) = (self.policies.in_force(), &self.aggregators);
        let may_leave =
            |id, key: &Key| !policy.is_listed(&key.tenant) && !aggregators.is_held(id, &self.parameters);
        for (bucket, keys) in self.keys.on_tick(now, may_leave) {
            self.aggregators.forget_keys(&keys);
            if let Some(bucket) = self.buckets.get_mut(&bucket) {
                bucket.remove_keys(&keys);
            }
        }
    }

    /// Brings what each aggregator is sent up to date.
    fn post(&mut self) {
        self.settle_kills();
        let (policy, durable, buckets) = (self.policies.in_force(), &self.durable, &self.buckets);
        self.aggregators.post(|place, board| {
            for bucket in buckets.as_slice() {
                board.apply(&bucket.directive(place, policy, durable));
            }
        });
    }

    /// Gives a hold to every aggregator that is not sent rates, and posts it. Must follow every arrival and departure of
    /// an aggregator and every change of a limit.
    fn assign_holds(&mut self) {
        let expected = self.expected_aggregators();
        for bucket in self.buckets.iter_mut() {
            bucket.assign_holds(&self.aggregators, expected);
        }
        self.post();
    }

    /// The number of aggregators among which a limit is divided evenly while their traffic is unknown.
    fn expected_aggregators(&self) -> usize {
        self.durable.children.len().max(self.aggregators.len())
    }

    /// Takes the durable state if it must be saved now, with the number to report to [`on_saved`](Self::on_saved).
    #[must_use]
    pub fn unsaved(&mut self) -> Option<(u64, DurableState)> {
        Some((self.pending_saves.take_due()?, self.durable.clone()))
    }

    /// Notes that the state with this number was saved.
    pub fn on_saved(&mut self, number: u64) {
        self.pending_saves.on_saved(number);
    }

    /// Notes that a save failed. Directives are sent unsaved until a later save succeeds.
    pub fn on_save_failed(&mut self) {
        self.pending_saves.on_failed();
    }

    /// Returns true if every decision is saved.
    #[must_use]
    pub const fn is_saved(&self) -> bool {
        self.pending_saves.is_saved()
    }

    /// Returns true if every decision may be sent: it is saved, or saving fails.
    #[must_use]
    pub const fn is_in_effect(&self) -> bool {
        self.pending_saves.is_in_effect()
    }

    /// The policy in force.
    #[must_use]
    pub const fn policy(&self) -> &Arc<Policy> {
        self.policies.in_force()
    }

    /// The policy that is held back.
    #[must_use]
    pub const fn held_policy(&self) -> Option<&HeldPolicy> {
        self.policies.held()
    }

    /// The state that outlives a restart.
    #[must_use]
    pub const fn durable(&self) -> &DurableState {
        &self.durable
    }

    /// The aggregators and their traffic.
    #[must_use]
    pub const fn aggregators(&self) -> &Aggregators {
        &self.aggregators
    }

    /// The sessions of aggregators, connected or remembered.
    #[must_use]
    pub const fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Every known bucket.
    #[must_use]
    pub fn buckets(&self) -> &[BucketState] {
        self.buckets.as_slice()
    }

    /// Every key with its total counts.
    pub fn totals(&self) -> impl Iterator<Item = (&Key, Tally)> {
        self.keys.totals()
    }

    /// Returns true once rates are being sent.
    #[must_use]
    pub const fn is_leading(&self) -> bool {
        self.takeover.is_leading()
    }

    /// Loss and error counters.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        Counters {
            unconfirmed: self.aggregators.unconfirmed(),
            rejected: self.aggregators.rejected_keys() + self.buckets.rejected(),
            saves_failed: self.pending_saves.failures(),
        }
    }
}
