//! The aggregators that report to this controller: the rate of each key through each of them, how much of that
//! traffic still counts when one falls silent, and what each is sent.

mod aggregator;
mod callers;
pub(crate) mod leadership;
pub(crate) mod liveness;
pub(crate) mod takeover;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use plimsoll_core::directive::Board;
use plimsoll_core::law::Parameters;
use plimsoll_core::names::{Bucket, Key, KeyId, Name, Zone};
use plimsoll_core::quantity::{MonoTime, Rate};
use plimsoll_core::report::{Entered, Identity, InstanceId, Report};
use plimsoll_policy::Policy;

pub(crate) use self::aggregator::{Activity, Aggregator};

/// The zone and the stable name of an aggregator. A restarted aggregator keeps both.
pub(crate) type AggregatorKey = (Zone, Name);

pub(crate) fn place_of(identity: &Identity) -> AggregatorKey {
    (identity.zone.clone(), identity.name.clone())
}

#[derive(Debug, Default)]
pub(crate) struct Aggregators {
    pub(crate) by_place: BTreeMap<AggregatorKey, Aggregator>,
    /// The number of [posts](Self::post) of directives so far.
    pub(crate) revision: u64,
    /// Requests given up because a parent failed before it confirmed them: they may have been counted
    /// already.
    pub(crate) unconfirmed: u64,
    /// Requests that were not counted, because the aggregator's clients cannot have decided so many.
    pub(crate) cut: u64,
    /// Keys in reports without room in the key table.
    pub(crate) rejected_keys: u64,
}

// === impl Aggregators ===

impl Aggregators {
    /// Registers the aggregator that greets. A new process keeps the rates of the process before it. Returns
    /// the instance that it replaces.
    pub(crate) fn greet(
        &mut self,
        now: MonoTime,
        place: AggregatorKey,
        instance: InstanceId,
        holds: BTreeMap<Bucket, Rate>,
    ) -> Option<InstanceId> {
        let aggregator = self
            .by_place
            .entry(place)
            .or_insert_with(|| Aggregator::new(now, instance, holds.clone()));
        let before = aggregator.greet(now, instance, holds);
        (before != instance).then_some(before)
    }

    /// Takes the counts that a report, or a part of one, added. A report without a span gives no rates. In a report
    /// with a span, a key without an entry was offered nothing.
    pub(crate) fn enter(&mut self, place: &AggregatorKey, report: &Report, entered: &Entered) {
        self.unconfirmed = self.unconfirmed.saturating_add(entered.unconfirmed);
        self.cut = self.cut.saturating_add(entered.cut);
        self.rejected_keys += entered.rejected_keys as u64;
        // Absent if its share was released while its stream stayed open: it counts again once it greets
        // again.
        if let Some(aggregator) = self.by_place.get_mut(place) {
            aggregator.enter(report, entered);
        }
    }

    /// Ages the rates and the silence of every aggregator. If no aggregator reported since the last tick, the
    /// controller itself is cut off, and none of them ages.
    pub(crate) fn on_tick(&mut self, since_last: Duration, parameters: &Parameters) {
        let any_reported = self.by_place.values().any(|aggregator| aggregator.reported);
        for aggregator in self.by_place.values_mut() {
            aggregator.on_tick(since_last, any_reported, parameters);
        }
    }

    /// Removes aggregators without any presence left, unless their shares are `kept` for good. Returns their
    /// places.
    pub(crate) fn remove_absent(&mut self, kept: bool) -> Vec<AggregatorKey> {
        let is_absent = |aggregator: &Aggregator| aggregator.presence() == 0.0 && !kept;
        let absent = self
            .by_place
            .iter()
            .filter(|(_, aggregator)| is_absent(aggregator));
        let absent: Vec<AggregatorKey> = absent.map(|(place, _)| place.clone()).collect();
        for place in &absent {
            self.by_place.remove(place);
        }
        absent
    }

    pub(crate) fn forget_keys(&mut self, keys: &HashSet<KeyId>) {
        self.by_place
            .values_mut()
            .for_each(|aggregator| aggregator.forget_keys(keys));
    }

    pub(crate) fn remove_buckets(&mut self, gone: &BTreeSet<Bucket>) {
        self.by_place
            .values_mut()
            .for_each(|aggregator| aggregator.board.remove(gone));
    }

    pub(crate) fn clear_fresh(&mut self) {
        self.by_place.values_mut().for_each(Aggregator::clear_fresh);
    }

    /// Brings the board of every aggregator up to date with `post`, which is given its place and instance.
    pub(crate) fn post(&mut self, mut post: impl FnMut(&AggregatorKey, InstanceId, &mut Board)) {
        self.revision += 1;
        for (place, aggregator) in &mut self.by_place {
            post(place, aggregator.instance, &mut aggregator.board);
        }
    }

    /// Divides the tenant limit of each reported name whose rates together exceed it, by the rate at each aggregator.
    pub(crate) fn divide_limits(&mut self, policy: &Policy) {
        let mut rates = HashMap::new();
        for (key, rate) in self.limited() {
            *rates.entry(key.clone()).or_default() += rate;
        }
        for aggregator in self.by_place.values_mut() {
            aggregator.divide_limits(policy, &rates);
        }
    }

    /// The names that may exceed their tenant limit, with their requests/s at each aggregator that reports them.
    pub(crate) fn limited(&self) -> impl Iterator<Item = (&Key, f64)> {
        self.by_place.values().flat_map(Aggregator::limited)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_place.len()
    }

    pub(crate) fn get(&self, place: &AggregatorKey) -> Option<&Aggregator> {
        self.by_place.get(place)
    }

    pub(crate) fn contains(&self, place: &AggregatorKey) -> bool {
        self.by_place.contains_key(place)
    }

    pub(crate) fn clients(&self, place: &AggregatorKey) -> Option<u32> {
        self.get(place)?.clients
    }

    /// Returns true if a silent aggregator still has a rate of a key.
    pub(crate) fn is_held(&self, key: KeyId, parameters: &Parameters) -> bool {
        self.by_place
            .values()
            .any(|aggregator| aggregator.is_silent(parameters) && aggregator.rate(key) > 0.0)
    }

    pub(crate) fn place_of(&self, instance: InstanceId) -> Option<&AggregatorKey> {
        self.by_place
            .iter()
            .find(|(_, aggregator)| aggregator.instance == instance)
            .map(|(place, _)| place)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&AggregatorKey, &Aggregator)> + Clone {
        self.by_place.iter()
    }
}

#[cfg(test)]
mod tests;
