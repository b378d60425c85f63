//! How long ago each aggregator was heard, by this controller's own clock. Pure.
//!
//! The law's silence is another thing: it grows only while others are heard, since a controller that hears nobody is cut
//! off itself. Who tries enforcement out must not, whoever is at fault.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::rollout::gates::StaleZone;
use plimsoll_core::quantity::MonoTime;

use crate::aggregators::Place;

/// When each was heard last.
#[derive(Debug)]
pub struct Feeds {
    stale_after: Duration,
    heard: BTreeMap<Place, MonoTime>,
}

impl Feeds {
    /// Those who were there when an earlier controller stopped are waited for from `now` on.
    pub(crate) fn new(now: MonoTime, stale_after: Duration, known: impl Iterator<Item = Place>) -> Self {
        Self { stale_after, heard: known.map(|place| (place, now)).collect() }
    }

    pub(crate) fn hear(&mut self, now: MonoTime, place: &Place) {
        match self.heard.get_mut(place) {
            Some(heard) => *heard = now,
            None => drop(self.heard.insert(place.clone(), now)),
        }
    }

    /// One that stops in good order is not stale.
    pub(crate) fn leave(&mut self, place: &Place) {
        self.heard.remove(place);
    }

    /// Those that have not been heard for too long.
    pub fn stale(&self, now: MonoTime) -> impl Iterator<Item = (&Place, Duration)> {
        let ages = self.heard.iter().map(move |(place, heard)| (place, now.since(*heard)));
        ages.filter(|(_, age)| *age > self.stale_after)
    }

    /// The one that has not been heard for the longest time, if that is too long.
    pub(crate) fn stalest(&self, now: MonoTime) -> Option<StaleZone> {
        let ((zone, _), age) = self.stale(now).max_by_key(|(_, age)| *age)?;
        Some(StaleZone { zone: zone.to_string(), age })
    }

    /// Forgets those that were found stale and of which nothing `counts` any more.
    pub(crate) fn forget(&mut self, now: MonoTime, counts: impl Fn(&Place) -> bool) {
        let stale_after = self.stale_after;
        self.heard.retain(|place, heard| now.since(*heard) <= stale_after || counts(place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::names::{Name, Zone};

    fn place(zone: &str) -> Place {
        (Zone::new(zone).unwrap(), Name::new("a").unwrap())
    }

    fn at(s: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_secs(s))
    }

    #[test]
    fn a_zone_is_stale_once_it_was_not_heard_for_too_long_and_not_when_it_has_left() {
        let mut feeds = Feeds::new(at(0), Duration::from_secs(60), [place("a"), place("b")].into_iter());
        feeds.hear(at(10), &place("c"));
        feeds.hear(at(30), &place("a"));
        assert_eq!(feeds.stalest(at(60)), None);
        let stale = |zone: &str, s| Some(StaleZone { zone: zone.to_owned(), age: Duration::from_secs(s) });
        assert_eq!(feeds.stalest(at(61)), stale("b", 61), "it never came back");
        feeds.hear(at(61), &place("b"));
        assert_eq!(feeds.stalest(at(61)), None);
        assert_eq!(feeds.stalest(at(100)), stale("c", 90));
        feeds.leave(&place("c"));
        assert_eq!(feeds.stalest(at(100)), stale("a", 70));
        feeds.forget(at(100), |_| true);
        assert_eq!(feeds.stale(at(100)).count(), 1);
        feeds.forget(at(100), |_| false);
        assert_eq!((feeds.stale(at(100)).count(), feeds.heard.len()), (0, 1));
    }
}
