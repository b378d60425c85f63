//! The departure of aggregators from the brain: with a farewell, by an operator, or after a long silence. A silent
//! aggregator expires with its shares. It is remembered until it returns, is forgotten, or 7 days have passed, in a list of
//! bounded length.

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_core::names::{Bucket, nearest};
use plimsoll_core::quantity::Rate;
use plimsoll_core::report::{Identity, InstanceId};
use plimsoll_core::rollout::gates::StaleZone;

use super::Brain;
use crate::aggregators::{Aggregator, AggregatorKey};
use crate::bucket::BucketState;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ForgetError {
    #[error("no aggregator `{given}` is known; {}", hint(.nearest.as_deref()))]
    Unknown {
        given: String,
        /// The known aggregator with the most similar name, if one is similar.
        nearest: Option<String>,
    },
    #[error("aggregator `{0}` is connected: stop it first, then forget it")]
    Connected(String),
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || "`plimsoll status` lists all".to_owned(),
        |nearest| format!("did you mean `{nearest}`?"),
    )
}

pub(crate) fn display((zone, name): &AggregatorKey) -> String {
    format!("{zone}/{name}")
}

fn is_at(identity: &Identity, place: &AggregatorKey) -> bool {
    (&identity.zone, &identity.name) == (&place.0, &place.1)
}

impl Brain {
    /// Returns the zone and name of the aggregator directly below with this process id, in
    /// hexadecimal digits as in the state.
    pub(crate) fn aggregator_of(&self, instance: &str) -> Option<String> {
        let instance = InstanceId(u128::from_str_radix(instance, 16).ok()?);
        self.downstream.aggregators.place_of(instance).map(display)
    }

    /// Removes aggregators whose share is released, and aggregators that did not return after the start.
    /// They are remembered as expired. Removes none while a bucket never releases its shares.
    pub(super) fn expire_aggregators(&mut self, unix_s: i64) {
        let any_forgotten = self.durable.expired.prune(unix_s);
        self.pending_saves.note_wanted(any_forgotten);
        let kept = self
            .buckets
            .states
            .values()
            .any(BucketState::is_never_released);
        let mut gone = Vec::new();
        if !kept
            && self
                .downstream
                .takeover
                .has_waited(self.clock.progress.now())
        {
            let missing = self
                .durable
                .children
                .iter()
                .filter(|place| !self.downstream.aggregators.contains(place));
            gone.extend(missing.cloned());
        }
        gone.extend(self.downstream.aggregators.remove_absent(kept));
        for place in gone {
            let silent_s = i64::try_from(self.silence(&place).as_secs()).unwrap_or(i64::MAX);
            let released: Vec<(Bucket, Rate)> = self
                .buckets
                .states
                .values()
                .filter_map(|bucket| bucket.hold_of(&place))
                .collect();
            self.durable
                .expired
                .add(place.clone(), unix_s.saturating_sub(silent_s), released);
            self.pending_saves.note_wanted(true);
            self.remove_aggregator(&place);
        }
    }

    /// Removes the parts of an aggregator in all buckets. After a restart it is not waited for. Its liveness stays: an
    /// aggregator without a farewell becomes stale, which ends canaries.
    pub(super) fn remove_aggregator(&mut self, place: &AggregatorKey) {
        for bucket in self.buckets.states.values_mut() {
            bucket.zones.remove(place);
        }
        let changed = self.durable.children.remove(place);
        self.pending_saves.note_change(changed);
    }

    /// Removes an aggregator for good: it left cleanly, or an operator knows that it does not
    /// return. The share that is still held for it is free immediately.
    pub(super) fn dismiss(&mut self, place: &AggregatorKey) {
        let sessions = self
            .downstream
            .sessions
            .iter()
            .filter(|child| is_at(&child.identity, place));
        let instances: Vec<_> = sessions.map(|child| child.identity.instance).collect();
        instances
            .into_iter()
            .for_each(|instance| self.downstream.sessions.remove(instance));
        self.downstream.liveness.leave(place);
        self.downstream.aggregators.by_place.remove(place);
        self.remove_aggregator(place);
        self.downstream.takeover.expected = self.expected_aggregators();
        let was_expired = self.durable.expired.remove(place);
        // The command that forgets it is answered once this is saved.
        self.pending_saves.note_change(was_expired);
        self.assign_holds();
    }

    /// Forgets the aggregator with this `ZONE/NAME`, and returns its place.
    ///
    /// # Errors
    /// If none is known, or if it is connected.
    pub(crate) fn forget(&mut self, given: &str) -> Result<AggregatorKey, ForgetError> {
        let known = self.known_aggregators();
        let Some(place) = known.iter().find(|place| display(place) == given) else {
            let known: Vec<String> = known.iter().map(display).collect();
            let nearest = nearest(given, known.iter().map(String::as_str)).map(str::to_owned);
            return Err(ForgetError::Unknown {
                given: given.to_owned(),
                nearest,
            });
        };
        if self
            .downstream
            .sessions
            .connected()
            .any(|child| is_at(&child.identity, place))
        {
            return Err(ForgetError::Connected(given.to_owned()));
        }
        self.dismiss(place);
        Ok(place.clone())
    }

    /// Every aggregator that reported, is waited for after a restart, or has expired.
    pub(crate) fn known_aggregators(&self) -> BTreeSet<AggregatorKey> {
        let registered = self.downstream.aggregators.iter().map(|(place, _)| place);
        let heard = self.downstream.liveness.places();
        let known = registered
            .chain(&self.durable.children)
            .chain(heard)
            .cloned();
        known
            .chain(self.durable.expired.iter().map(|expired| expired.place()))
            .collect()
    }

    /// The aggregators without a report for too long, expired ones included.
    pub(crate) fn stale_aggregators(&self) -> BTreeSet<AggregatorKey> {
        let stale = self
            .downstream
            .liveness
            .stale(self.clock.progress.now())
            .map(|(place, _)| place.clone());
        stale
            .chain(self.durable.expired.iter().map(|expired| expired.place()))
            .collect()
    }

    /// The time of day in seconds since 1970 at the last tick; 0 before the first.
    pub(crate) fn unix_s(&self) -> i64 {
        self.clock.unix_s.unwrap_or_default()
    }

    pub(crate) fn has_name_conflict(&self, aggregator: &Aggregator) -> bool {
        aggregator.has_name_conflict(self.clock.progress.now())
    }

    /// The zone of the aggregator without a report for the longest time, if that is too long.
    pub(super) fn stalest(&self) -> Option<StaleZone> {
        self.downstream.liveness.stalest(self.clock.progress.now())
    }

    /// The time since the last report of an aggregator, without pauses of this process; zero for one whose
    /// liveness was removed.
    pub(crate) fn silence(&self, place: &AggregatorKey) -> Duration {
        self.downstream
            .liveness
            .silence(self.clock.progress.now(), place)
    }
}
