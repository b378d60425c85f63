//! One tick of the brain: the law is applied to every bucket, and every rollout is judged.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use plimsoll_core::decision::Mode;
use plimsoll_core::exchange::sessions::ChildSession;
use plimsoll_core::names::{Bucket, Key, KeyId};
use plimsoll_core::quantity::{MonoTime, Rate};
use plimsoll_core::stats::AdmissionFigures;

use super::Brain;
use crate::aggregators::AggregatorKey;
use crate::aggregators::takeover::Takeover;
use crate::bucket::{Buckets, Tick};

/// Interval of the search for idle buckets.
const SWEEP: Duration = Duration::from_secs(10);

impl Brain {
    /// Applies the law to every bucket, and judges every rollout. Must be called once per
    /// [tick](plimsoll_core::law::Parameters::tick). `unix_s` is the time of day in seconds since
    /// 1970, for what outlives a process, and for boosts, kills and the minutes of the history.
    pub fn on_tick(&mut self, now: MonoTime, unix_s: i64) {
        let since_last = now.since(self.clock.at);
        (self.clock.at, self.clock.unix_s) = (now, Some(unix_s));
        let ran = self.clock.progress.on_tick(now, self.parameters.tick);
        self.on_time(now, unix_s);
        self.note_policies(unix_s);
        // Silent aggregators may report to another leader, which has their shares: none is released.
        let is_unconfirmed = self.leadership.is_unconfirmed();
        let aged = if is_unconfirmed { Duration::ZERO } else { ran };
        self.downstream.aggregators.on_tick(aged, &self.parameters);
        self.downstream
            .aggregators
            .age_callers(since_last, &self.parameters);
        self.sample_minute(now, unix_s);
        if !is_unconfirmed {
            self.expire_aggregators(unix_s);
        }
        self.list_active_rows(now);
        self.evict_keys(now);
        self.drop_idle_buckets(now);
        self.downstream.sessions.prune(now);
        self.buckets.find_nearest(&self.policies.in_force);
        self.downstream.takeover.on_tick(
            self.clock.progress.now(),
            &mut self.downstream.aggregators,
            &self.parameters,
        );
        self.apply_law(now, since_last, unix_s);
        self.downstream
            .aggregators
            .divide_limits(&self.policies.in_force);
        self.tick_traffic(now);
        self.downstream.aggregators.clear_fresh();
        self.tick_rollouts(now, unix_s);
        self.record_refusals(now, unix_s);
        self.post();
    }

    /// Divides the limit of each bucket. `expected` aggregators are to report now, and `most_expected` were since the
    /// start: an aggregator that is not heard of again had an even part among those.
    fn apply_law(&mut self, now: MonoTime, since_last: Duration, unix_s: i64) {
        let expected = self.expected_aggregators();
        let most_expected = self.downstream.takeover.expected.max(expected);
        self.downstream.takeover.expected = most_expected;
        let tick = Tick {
            since_last,
            unix_s,
            aggregators: &self.downstream.aggregators,
            policy: &self.policies.in_force,
            parameters: &self.parameters,
            leading: self.downstream.takeover.leading,
        };
        let any_missing = self
            .durable
            .children
            .iter()
            .any(|place| !self.downstream.aggregators.contains(place));
        let is_served = |place: &AggregatorKey| {
            self.downstream
                .aggregators
                .get(place)
                .is_some_and(|it| it.served)
        };
        let all_served = self.durable.children.iter().all(is_served);
        let reserved_share = self
            .downstream
            .takeover
            .reserved_share(self.clock.progress.now(), all_served);
        let all_on_rates = tick.leading
            && !any_missing
            && tick
                .aggregators
                .iter()
                .all(|(_, it)| it.served && !it.is_silent(tick.parameters));
        let durable = &self.durable;
        self.buckets.each_with_scratch(|bucket, scratch| {
            bucket.assign_holds(tick.aggregators, expected);
            let limit = bucket
                .divided_limit()
                .per_second()
                .map_or(0.0, Rate::per_second);
            // If the bucket never releases the share of a silent aggregator, a missing one keeps its share after a
            // restart, too.
            let reserved_share = if any_missing && bucket.is_never_released() {
                1.0
            } else {
                reserved_share
            };
            let divisible = Takeover::divisible(
                &bucket.name,
                limit,
                tick.aggregators,
                most_expected,
                reserved_share,
            );
            bucket.on_tick(&tick, divisible, scratch);
            let is_judged = all_on_rates && !durable.kill_of(&bucket.name).is_on();
            // Also ends a second of refusals, whether the figures are judged or not.
            bucket.check_admissions(now, is_judged.then_some(divisible));
        });
    }

    fn record_refusals(&mut self, now: MonoTime, unix_s: i64) {
        let (states, durable) = (&self.buckets.states, &self.durable);
        self.buckets.refusals.on_tick(now, unix_s, |bucket| {
            states.get(bucket).map_or((None, Mode::Shadow), |state| {
                let limit = state.limit.per_second().map(Rate::per_second);
                (limit, state.mode(durable))
            })
        });
    }

    fn evict_keys(&mut self, now: MonoTime) {
        let (policy, aggregators) = (&self.policies.in_force, &self.downstream.aggregators);
        let may_leave = |id, key: &Key| {
            !policy.is_listed(&key.tenant) && !aggregators.is_held(id, &self.parameters)
        };
        for (bucket, keys) in self.keys.on_tick(now, may_leave) {
            self.downstream.aggregators.forget_keys(&keys);
            if let Some(bucket) = self.buckets.states.get_mut(&bucket) {
                bucket.tenants.remove(&keys);
            }
        }
    }

    /// Drops buckets without traffic: buckets that the policy does not cover, and buckets under a pattern without
    /// a recent subscription. The totals of a bucket that returns begin at zero.
    fn drop_idle_buckets(&mut self, now: MonoTime) {
        if now.since(self.clock.swept) < SWEEP {
            return;
        }
        self.clock.swept = now;
        self.buckets.no_room.prune(now);
        self.buckets.unlisted.prune(now);
        for bucket in self
            .downstream
            .sessions
            .connected()
            .flat_map(ChildSession::subscriptions)
        {
            if let Some(state) = self.buckets.states.get_mut(bucket) {
                state.subscribed_at = now;
            }
        }
        let has_room = self.buckets.room() > 0;
        let unused = self.buckets.states.values().filter(|bucket| {
            Buckets::is_unused(now, bucket, has_room)
                && bucket.tenants.keys().all(|key| {
                    self.keys.is_idle(now, key)
                        && !self.downstream.aggregators.is_held(key, &self.parameters)
                })
        });
        let (mut gone, mut keys) = (BTreeSet::<Bucket>::new(), HashSet::<KeyId>::new());
        for bucket in unused {
            gone.insert(bucket.name.clone());
            keys.extend(bucket.tenants.keys());
        }
        if gone.is_empty() {
            return;
        }
        self.keys.remove(&keys);
        self.downstream.aggregators.forget_keys(&keys);
        self.downstream.aggregators.remove_buckets(&gone);
        self.downstream.sessions.unsubscribe(&gone);
        self.buckets
            .states
            .retain(|bucket, _| !gone.contains(bucket));
    }

    /// Returns, for each bucket, what its counts of the last seconds show: the share refused, and whether fewer pass
    /// than the limit allows.
    pub fn admission_figures(&self) -> impl Iterator<Item = (&Bucket, AdmissionFigures)> {
        self.buckets
            .states
            .values()
            .map(|bucket| (&bucket.name, bucket.admissions.figures()))
    }

    /// Takes the buckets without room that are due for the log.
    pub(crate) fn take_unprotected(&mut self) -> Vec<Bucket> {
        self.buckets.no_room.take_unlogged()
    }
}
