//! The busiest names that the policy does not list, as the aggregators report them. The law does not read them.

use std::collections::HashMap;
use std::time::Duration;

use plimsoll_core::law::Parameters;
use plimsoll_core::names::{Bucket, Key, Tenant};
use plimsoll_core::quantity::Rate;
use plimsoll_core::report::CALLERS_PER_BUCKET_MAX;

use super::Aggregators;

/// Time after which a list tells nothing of the present.
const KEPT: Duration = Duration::from_secs(30);

/// The latest list of one aggregator.
#[derive(Debug, Default)]
pub(super) struct Callers {
    /// In the order of keys.
    rates: Vec<(Key, Rate)>,
    age: Duration,
    is_silent: bool,
}

impl Callers {
    /// Takes the list of a report. An empty list means unchanged.
    pub(super) fn enter(&mut self, callers: &[(Key, Rate)]) {
        if !callers.is_empty() {
            self.rates = callers.to_vec();
            self.rates
                .sort_unstable_by(|one, other| one.0.cmp(&other.0));
            self.age = Duration::ZERO;
        }
    }

    fn of(&self, bucket: &Bucket) -> impl Iterator<Item = &(Key, Rate)> {
        let rates = match self.is_silent {
            true => &[],
            false => self.rates.as_slice(),
        };
        let first = rates.partition_point(|(key, _)| key.bucket < *bucket);
        let rates = rates.iter().skip(first);
        rates.take_while(move |(key, _)| key.bucket == *bucket)
    }
}

impl Aggregators {
    /// Drops lists that are too old, and hides those of silent aggregators. `elapsed` counts all time: also when no
    /// aggregator ages, their lists do.
    pub(crate) fn age_callers(&mut self, elapsed: Duration, parameters: &Parameters) {
        for aggregator in self.by_place.values_mut() {
            let is_silent = aggregator.is_silent(parameters);
            let callers = &mut aggregator.callers;
            callers.is_silent = is_silent;
            callers.age = callers.age.saturating_add(elapsed);
            if callers.age > KEPT {
                callers.rates = Vec::new();
            }
        }
    }

    /// Returns the unlisted names of a bucket that `counts`, the highest requests/s first, at most
    /// [`CALLERS_PER_BUCKET_MAX`]. Each aggregator reports only its own busiest names, so a rate may be too low.
    pub(crate) fn callers(
        &self,
        bucket: &Bucket,
        counts: impl Fn(&Tenant) -> bool,
    ) -> Vec<(Tenant, f64)> {
        let mut rates: HashMap<&Tenant, f64> = HashMap::new();
        let lists = self.by_place.values();
        let listed = lists.flat_map(|aggregator| aggregator.callers.of(bucket));
        for (key, rate) in listed.filter(|(key, _)| counts(&key.tenant)) {
            *rates.entry(&key.tenant).or_default() += rate.per_second();
        }
        let mut busiest: Vec<(&Tenant, f64)> = rates.into_iter().collect();
        // Equal rates in the order of names, so that a page does not flicker.
        busiest.sort_unstable_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(other.0)));
        busiest.truncate(CALLERS_PER_BUCKET_MAX);
        let each = busiest.into_iter();
        each.map(|(tenant, rate)| (tenant.clone(), rate)).collect()
    }
}
