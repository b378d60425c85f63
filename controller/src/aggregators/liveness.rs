//! The time since the last report of each aggregator. Each `now` is of the brain's clock `progress`, which stands
//! still while the controller does not run: its pauses are no silence of an aggregator. Pure.
//!
//! The control law counts silence differently: an aggregator's silence grows only while other aggregators
//! report, because a controller without any reports is cut off itself. A canary is ended in either case:
//! without reports nothing is known of it.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::quantity::MonoTime;
use plimsoll_core::rollout::gates::StaleZone;

use crate::aggregators::AggregatorKey;

#[derive(Debug)]
pub(crate) struct Liveness {
    stale_after: Duration,
    reported_at: BTreeMap<AggregatorKey, MonoTime>,
}

impl Liveness {
    /// Waits from `now` on for the aggregators that are `known` from before a restart.
    pub(crate) fn new(
        now: MonoTime,
        stale_after: Duration,
        known: impl Iterator<Item = AggregatorKey>,
    ) -> Self {
        Self {
            stale_after,
            reported_at: known.map(|place| (place, now)).collect(),
        }
    }

    pub(crate) fn on_report(&mut self, now: MonoTime, place: &AggregatorKey) {
        match self.reported_at.get_mut(place) {
            Some(reported_at) => *reported_at = now,
            None => drop(self.reported_at.insert(place.clone(), now)),
        }
    }

    /// Removes an aggregator that stops cleanly, or that an operator forgets: it never becomes stale.
    pub(crate) fn leave(&mut self, place: &AggregatorKey) {
        self.reported_at.remove(place);
    }

    /// The aggregators without a report for too long, and for how long.
    pub(crate) fn stale(&self, now: MonoTime) -> impl Iterator<Item = (&AggregatorKey, Duration)> {
        let ages = self
            .reported_at
            .iter()
            .map(move |(place, at)| (place, now.since(*at)));
        ages.filter(|(_, age)| *age > self.stale_after)
    }

    pub(crate) fn places(&self) -> impl Iterator<Item = &AggregatorKey> {
        self.reported_at.keys()
    }

    /// The time since the last report of an aggregator; zero if it is unknown.
    pub(crate) fn silence(&self, now: MonoTime, place: &AggregatorKey) -> Duration {
        self.reported_at
            .get(place)
            .map_or(Duration::ZERO, |at| now.since(*at))
    }

    /// The zone of the aggregator without a report for the longest time, if that is too long.
    pub(crate) fn stalest(&self, now: MonoTime) -> Option<StaleZone> {
        let ((zone, _), age) = self.stale(now).max_by_key(|(_, age)| *age)?;
        Some(StaleZone {
            zone: zone.to_string(),
            age,
        })
    }

    /// Forgets aggregators that are stale, unless they are registered, or waited for after a restart.
    pub(crate) fn forget_stale(
        &mut self,
        now: MonoTime,
        is_expected: impl Fn(&AggregatorKey) -> bool,
    ) {
        let stale_after = self.stale_after;
        self.reported_at
            .retain(|place, at| now.since(*at) <= stale_after || is_expected(place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::names::{Name, Zone};

    fn place(zone: &str) -> AggregatorKey {
        (Zone::new(zone).unwrap(), Name::new("a").unwrap())
    }

    fn at(s: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_secs(s))
    }

    #[test]
    fn silent_zone_is_stale_unless_it_left() {
        let mut liveness = Liveness::new(
            at(0),
            Duration::from_secs(60),
            [place("a"), place("b")].into_iter(),
        );
        liveness.on_report(at(10), &place("c"));
        liveness.on_report(at(30), &place("a"));
        assert_eq!(liveness.stalest(at(60)), None);
        let stale = |zone: &str, s| {
            Some(StaleZone {
                zone: zone.to_owned(),
                age: Duration::from_secs(s),
            })
        };
        assert_eq!(
            liveness.stalest(at(61)),
            stale("b", 61),
            "it never came back"
        );
        liveness.on_report(at(61), &place("b"));
        assert_eq!(liveness.stalest(at(61)), None);
        assert_eq!(liveness.stalest(at(100)), stale("c", 90));
        liveness.leave(&place("c"));
        assert_eq!(liveness.stalest(at(100)), stale("a", 70));
        liveness.forget_stale(at(100), |_| true);
        assert_eq!(liveness.stale(at(100)).count(), 1);
        liveness.forget_stale(at(100), |_| false);
        assert_eq!(
            (liveness.stale(at(100)).count(), liveness.reported_at.len()),
            (0, 1)
        );
    }
}
