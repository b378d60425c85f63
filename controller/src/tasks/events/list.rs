//! The latest events in the order of their numbers. Pure: the time is an argument.

use std::collections::{BTreeMap, VecDeque};

use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::Rate;

use super::{Event, EventKind, EventPage};
use crate::brain::LimitChange;

/// Maximum number of events.
pub(super) const EVENTS_MAX: usize = 10_000;
/// Maximum age of an event in milliseconds: 7 days.
const KEPT_MS: i64 = 7 * 24 * 3_600_000;
/// Maximum number of events of one kind and subject in an hour, unless persons make them: what flaps would push all
/// others out. More are only in the log.
const REPEATS_MAX: usize = 20;
const HOUR_MS: i64 = 3_600_000;
/// Maximum number of buckets whose limit at the last event is known.
const LIMITS_MAX: usize = 10_000;
/// The share by which a limit has to move for an event.
const NOTABLE: f64 = 0.1;

#[derive(Debug, Default)]
pub(super) struct EventList {
    events: VecDeque<Event>,
    last: u64,
    /// The limit of each bucket at its last event, or before its first change; `None` without a number.
    limits: BTreeMap<Bucket, Option<Rate>>,
}

impl EventList {
    /// The list of an earlier process.
    pub(super) fn restored(saved: Vec<Event>) -> Self {
        let mut list = Self::default();
        for event in saved {
            // Damage, or a line that was written twice.
            if event.number > list.last {
                list.last = event.number;
                list.events.push_back(event);
            }
        }
        list.prune(i64::MIN);
        list
    }

    /// Appends an event, unless it has been repeated too often. The number is the time, so that numbers grow also if the
    /// last ones were lost in a crash.
    pub(super) fn add(&mut self, unix_ms: i64, event: Event) {
        let is_repeat = |other: &&Event| {
            other.kind == event.kind
                && other.subject == event.subject
                && other.time_ms > unix_ms.saturating_sub(HOUR_MS)
        };
        let repeats = self.events.iter().filter(is_repeat).count();
        if event.by.is_none() && repeats >= REPEATS_MAX {
            return;
        }
        self.last = (self.last + 1).max(u64::try_from(unix_ms).unwrap_or_default());
        self.events.push_back(Event {
            number: self.last,
            time_ms: unix_ms,
            ..event
        });
        self.prune(unix_ms);
    }

    fn prune(&mut self, unix_ms: i64) {
        let oldest_ms = unix_ms.saturating_sub(KEPT_MS);
        while self.events.len() > EVENTS_MAX
            || self.events.front().is_some_and(|it| it.time_ms < oldest_ms)
        {
            self.events.pop_front();
        }
    }

    pub(super) const fn last(&self) -> u64 {
        self.last
    }

    /// The events after a number, the oldest first.
    pub(super) fn after(&self, number: u64) -> impl DoubleEndedIterator<Item = &Event> {
        let start = self.events.partition_point(|event| event.number <= number);
        self.events.range(start..)
    }

    /// The first events after a number and since a time.
    pub(super) fn page(&self, after: u64, since_ms: i64, limit: usize) -> EventPage {
        let mut found = self
            .after(after)
            .filter(|event| event.time_ms >= since_ms)
            .cloned();
        EventPage {
            events: found.by_ref().take(limit).collect(),
            more: found.next().is_some(),
        }
    }

    /// Returns the event of a limit that has moved notably since the last one. `how` says what moves it.
    pub(super) fn on_limit(&mut self, change: &LimitChange, how: &str) -> Option<Event> {
        let LimitChange { bucket, old, new } = change;
        let new = new.per_second();
        if self.limits.len() >= LIMITS_MAX && !self.limits.contains_key(bucket) {
            self.limits.pop_first();
        }
        let told = self.limits.entry(bucket.clone());
        let told = told.or_insert_with(|| old.per_second());
        let is_notable = match (told.map(Rate::per_second), new.map(Rate::per_second)) {
            (Some(told), Some(new)) => (new - told).abs() > NOTABLE * told,
            (told, new) => told != new,
        };
        if !is_notable {
            return None;
        }
        let rate = |rate: Option<Rate>| match rate {
            Some(rate) => format!("{:.0}", rate.per_second()),
            None => "none".to_owned(),
        };
        let text = format!(
            "the limit of {bucket} moved from {} to {} requests/s, as {how}",
            rate(std::mem::replace(told, new)),
            rate(new)
        );
        Some(Event::new(EventKind::LimitMoved, bucket, text))
    }
}
