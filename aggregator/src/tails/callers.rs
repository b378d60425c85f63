//! The busiest names of each bucket: an operator sees who they are, although the class counts them together.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::names::{Bucket, Key, Tenant};
use plimsoll_core::quantity::{MonoTime, Rate};
use plimsoll_core::report::{CALLERS_MAX, CALLERS_PER_BUCKET_MAX};

use super::Tails;
use super::limited::{in_class, keep_highest};
use crate::key_counts::{KeyCounts, Source};

/// Time between two lists: each takes a pass over all names.
const LIST_EVERY: Duration = Duration::from_secs(5);

impl Tails {
    /// Returns the names with the highest rates in requests/s: of each bucket at most [`CALLERS_PER_BUCKET_MAX`], and at
    /// most [`CALLERS_MAX`] of all, in no order. A name has the plan of its class in it. Empty within 5 s of the list
    /// before, which then still holds.
    pub(crate) fn take_callers(&mut self, now: MonoTime, counts: &KeyCounts) -> Vec<(Key, Rate)> {
        if self.callers_at.is_some_and(|at| now.since(at) < LIST_EVERY) {
            return Vec::new();
        }
        self.callers_at = Some(now);
        // The line of a name is its class. Lines of listed tenants stay without names here.
        let lines = counts.lines.keys();
        let mut by_line = vec![Vec::new(); lines.len()];
        for (id, key, counted) in counts.iter().filter(|(.., of)| of.source == Source::Name) {
            let names = by_line.get_mut(counted.line.index());
            if let (Some(names), Some(rate)) = (names, self.rate(now, id)) {
                names.push((rate, key));
                // Only now and then, so that a name costs a few steps.
                if names.len() >= 2 * CALLERS_PER_BUCKET_MAX {
                    keep_highest(names, CALLERS_PER_BUCKET_MAX, |name| name.0);
                }
            }
        }
        let mut by_bucket: BTreeMap<&Bucket, Vec<(f64, &Key, &Tenant)>> = BTreeMap::new();
        for (class, names) in lines.iter().zip(by_line) {
            let of_class = |(rate, key)| (rate, key, &class.tenant);
            let in_bucket = by_bucket.entry(&class.bucket).or_default();
            in_bucket.extend(names.into_iter().map(of_class));
        }
        let mut busiest = Vec::new();
        for mut names in by_bucket.into_values() {
            keep_highest(&mut names, CALLERS_PER_BUCKET_MAX, |name| name.0);
            busiest.extend(names);
        }
        keep_highest(&mut busiest, CALLERS_MAX, |name| name.0);
        let each = busiest.into_iter();
        each.filter_map(|(rate, key, class)| Some((in_class(key, class), Rate::computed(rate)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::report::Outbox;

    use super::*;
    use crate::key_counts::Kind;
    use crate::zone::bounds::Bounds;

    #[test]
    fn lists_are_bounded_over_all_buckets() {
        let interval = Duration::from_millis(100);
        let (mut tails, mut outbox) = (Tails::new(interval), Outbox::default());
        let mut keys = KeyCounts::new(7, &Bounds::default());
        let after = |millis| MonoTime::from_elapsed(Duration::from_millis(millis));
        // Each name of a bucket is busier than all names of the buckets before it.
        for number in 0..30 {
            let bucket = Bucket::new(&format!("b{number:02}")).unwrap();
            keys.declare(&bucket, &mut outbox).unwrap();
            let key = |name: &str| Key {
                bucket: bucket.clone(),
                tenant: Tenant::new(name).unwrap(),
            };
            let class = keys.get(&key("default")).unwrap();
            for name in 0..50 {
                let key = key(&format!("n{name:02}"));
                let requests = 1_000 + 50 * number + name;
                let found = keys.open(&key, requests, Kind::Name(class), &mut outbox);
                let found = found.unwrap();
                let (id, line) = (found.place.id, found.new.unwrap());
                tails.open(after(0), line, id, false);
                tails.add(after(0), line, id, requests as f64, None);
            }
        }
        let callers = tails.take_callers(after(0), &keys);
        let names = callers
            .iter()
            .map(|(key, _)| format!("{}/{}", key.bucket, key.tenant));
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        let busiest = (10..30).flat_map(|bucket| (30..50).map(move |name| (bucket, name)));
        let busiest = busiest.map(|(bucket, name)| format!("b{bucket}/n{name}"));
        assert_eq!(names, busiest.collect::<Vec<_>>());
        assert!(tails.take_callers(after(4_999), &keys).is_empty());
        assert_eq!(tails.take_callers(after(5_000), &keys).len(), CALLERS_MAX);
    }
}
