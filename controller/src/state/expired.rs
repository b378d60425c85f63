//! Aggregators without a farewell whose shares were released, or that did not return after a restart of the
//! controller. They stay visible: their clients may live and still admit what they were allowed before.

use std::collections::BTreeMap;

use plimsoll_core::names::{Bucket, Name, Zone};
use plimsoll_core::quantity::Rate;
use serde::{Deserialize, Serialize};

use crate::aggregators::AggregatorKey;

/// Maximum number of expired aggregators that are remembered.
const EXPIRED_MAX: usize = 256;
/// Time that an expired aggregator is remembered, in seconds: 7 days.
const EXPIRED_KEPT_S: i64 = 7 * 24 * 60 * 60;
/// Maximum number of released shares remembered for one expired aggregator: the largest ones.
const RELEASED_BUCKETS_MAX: usize = 64;

/// One expired aggregator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExpiredAggregator {
    /// Its zone.
    pub zone: Zone,
    /// Its stable name.
    pub name: Name,
    /// The time of its last report in seconds since 1970.
    pub last_report_s: i64,
    /// Its last parts of limits in requests/s, the largest ones: they are divided among the others.
    pub released: BTreeMap<Bucket, Rate>,
}

/// All expired aggregators, in the order of expiry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ExpiredAggregators(Vec<ExpiredAggregator>);

// === impl ExpiredAggregators ===

impl ExpiredAggregators {
    /// Adds an aggregator, instead of an earlier entry of the same place. Without room, the earliest expired aggregator
    /// is forgotten.
    pub(crate) fn add(
        &mut self,
        (zone, name): AggregatorKey,
        last_report_s: i64,
        mut released: Vec<(Bucket, Rate)>,
    ) {
        released.sort_by(|(_, one), (_, other)| other.per_second().total_cmp(&one.per_second()));
        released.truncate(RELEASED_BUCKETS_MAX);
        let released = released.into_iter().collect();
        self.remove(&(zone.clone(), name.clone()));
        if self.0.len() >= EXPIRED_MAX {
            self.0.remove(0);
        }
        self.0.push(ExpiredAggregator {
            zone,
            name,
            last_report_s,
            released,
        });
    }

    pub(crate) fn remove(&mut self, place: &AggregatorKey) -> bool {
        let before = self.0.len();
        self.0.retain(|expired| !expired.is_at(place));
        self.0.len() < before
    }

    /// Removes the aggregators with a last report too long ago. Returns true if there were any. A clock that jumps back
    /// keeps them longer.
    pub(crate) fn prune(&mut self, unix_s: i64) -> bool {
        let before = self.0.len();
        self.0
            .retain(|expired| expired.age_s(unix_s) <= EXPIRED_KEPT_S);
        self.0.len() < before
    }

    /// Requests/s of a bucket that belonged to expired aggregators.
    pub(crate) fn released(&self, bucket: &Bucket) -> f64 {
        let rates = self
            .0
            .iter()
            .filter_map(|expired| expired.released.get(bucket));
        // Not `sum`, which is -0 for nothing.
        rates.fold(0.0, |total, rate| total + rate.per_second())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ExpiredAggregator> {
        self.0.iter()
    }
}

// === impl ExpiredAggregator ===

impl ExpiredAggregator {
    pub(crate) fn is_at(&self, (zone, name): &AggregatorKey) -> bool {
        self.zone == *zone && self.name == *name
    }

    /// Seconds since its last report; 0 while the time of day is unknown, or behind that of the report.
    pub(crate) fn age_s(&self, unix_s: i64) -> i64 {
        unix_s.saturating_sub(self.last_report_s).max(0)
    }

    pub(crate) fn place(&self) -> AggregatorKey {
        (self.zone.clone(), self.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(number: usize) -> AggregatorKey {
        (
            Zone::new("a").unwrap(),
            Name::new(&format!("n{number}")).unwrap(),
        )
    }

    fn released(buckets: usize) -> Vec<(Bucket, Rate)> {
        let rate = |n: usize| Rate::new(1.0 + n as f64).unwrap();
        (0..buckets)
            .map(|n| (Bucket::new(&format!("b{n}")).unwrap(), rate(n)))
            .collect()
    }

    #[test]
    fn aggregator_is_remembered_for_seven_days() {
        let mut expired = ExpiredAggregators::default();
        for number in 0..EXPIRED_MAX {
            expired.add(place(number), number as i64, Vec::new());
        }
        // It takes its own place.
        expired.add(place(3), 500, Vec::new());
        let first = |expired: &ExpiredAggregators| expired.iter().next().unwrap().place();
        assert_eq!(first(&expired), place(0));
        expired.add(place(900), 900, Vec::new());
        assert_eq!(first(&expired), place(1));
        assert!(expired.remove(&place(5)) && !expired.remove(&place(5)));
        assert!(expired.prune(EXPIRED_KEPT_S + 3) && !expired.prune(EXPIRED_KEPT_S + 3));
        let left: Vec<AggregatorKey> = expired
            .iter()
            .map(ExpiredAggregator::place)
            .take(2)
            .collect();
        assert_eq!(left, [place(4), place(6)]);
    }

    #[test]
    fn age_is_never_negative() {
        let mut expired = ExpiredAggregators::default();
        expired.add(place(1), 1_800_000_000, Vec::new());
        let age_s = |unix_s| expired.iter().next().unwrap().age_s(unix_s);
        assert_eq!(
            (age_s(0), age_s(1_799_999_999), age_s(1_800_000_007)),
            (0, 0, 7)
        );
    }

    #[test]
    fn largest_released_shares_are_kept() {
        let mut expired = ExpiredAggregators::default();
        expired.add(place(1), 0, released(RELEASED_BUCKETS_MAX + 1));
        expired.add(place(2), 0, released(3));
        let of = |n: usize| expired.released(&Bucket::new(&format!("b{n}")).unwrap());
        assert_eq!(
            (of(0), of(2), of(RELEASED_BUCKETS_MAX)),
            (1.0, 6.0, 65.0),
            "the smallest of 65 is left out"
        );
        let text = serde_json::to_string(&expired).unwrap();
        assert_eq!(
            serde_json::from_str::<ExpiredAggregators>(&text).unwrap(),
            expired
        );
    }
}
