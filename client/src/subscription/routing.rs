//! Routing over several aggregators: the keys and the epoch of each bucket, on top of the bucket's
//! assignment.

use std::time::Duration;

use plimsoll_core::directive::{Epoch, Values};
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;

use super::directive_cache::DirectiveCache;
use super::sessions::Sessions;
use crate::subscription::assignment::{Assignment, Change, EndpointId, SessionState};

const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The age of the controller's state above which an aggregator has lost contact with the controller. One in
/// contact has a roll-up covered every half second, and reports that to its clients as often.
const CONTROLLER_SILENT_AFTER: Duration = Duration::from_secs(3);

pub(super) struct Routing {
    pub(super) assignment: Assignment,
    /// By bucket id.
    buckets: Vec<RoutedBucket>,
    /// By key id: the id of its bucket.
    bucket_of: Vec<usize>,
    checked_at: MonoTime,
}

#[derive(Default)]
struct RoutedBucket {
    keys: Vec<u32>,
    /// The highest epoch of a directive that was accepted for it.
    epoch: Option<Epoch>,
}

// === Events ===

impl Routing {
    pub(super) const fn new(failover_delay: Duration) -> Self {
        Self {
            assignment: Assignment::new(failover_delay),
            buckets: Vec::new(),
            bucket_of: Vec::new(),
            checked_at: MonoTime::ZERO,
        }
    }

    pub(super) fn add_bucket(&mut self, bucket: &Bucket) {
        self.assignment.add(bucket.as_str());
        self.buckets.push(RoutedBucket::default());
    }

    pub(super) fn add_key(&mut self, key: u32, bucket: usize) -> Option<EndpointId> {
        let at = key as usize;
        self.bucket_of
            .resize((at + 1).max(self.bucket_of.len()), bucket);
        self.bucket_of[at] = bucket;
        self.buckets[bucket].keys.push(key);
        self.assignment.owner(bucket)
    }

    pub(super) fn remove_key(&mut self, key: u32) {
        if let Some(bucket) = self.bucket(key) {
            self.buckets[bucket].keys.retain(|other| *other != key);
        }
    }

    pub(super) fn take_check_turn(&mut self, now: MonoTime) -> bool {
        let is_due = now.since(self.checked_at) >= CHECK_INTERVAL;
        if is_due {
            self.checked_at = now;
        }
        is_due
    }

    pub(super) fn check(
        &mut self,
        now: MonoTime,
        sessions: &Sessions,
        names: &[Bucket],
        directives: &DirectiveCache,
    ) -> Vec<Change> {
        let view = View {
            sessions,
            names,
            buckets: &self.buckets,
            directives,
            now,
        };
        self.assignment.on_tick(now, &view)
    }

    /// Returns false for a directive of an older epoch than the current one. Otherwise takes over
    /// its epoch.
    pub(super) fn accept_epoch(&mut self, bucket: usize, epoch: Option<Epoch>) -> bool {
        let held = &mut self.buckets[bucket].epoch;
        let is_accepted = epoch >= *held;
        *held = epoch.max(*held);
        is_accepted
    }
}

// === Queries ===

impl Routing {
    pub(super) fn owner_of_key(&self, key: u32) -> Option<EndpointId> {
        self.assignment.owner(self.bucket(key)?)
    }

    pub(super) fn is_draining(&self, key: u32) -> bool {
        self.bucket(key)
            .is_some_and(|bucket| self.assignment.is_draining(bucket))
    }

    pub(super) fn keys(&self, bucket: usize) -> &[u32] {
        &self.buckets[bucket].keys
    }

    /// The id of a key's bucket; `None` before the key was added.
    fn bucket(&self, key: u32) -> Option<usize> {
        self.bucket_of.get(key as usize).copied()
    }
}

struct View<'a> {
    sessions: &'a Sessions,
    names: &'a [Bucket],
    buckets: &'a [RoutedBucket],
    directives: &'a DirectiveCache,
    now: MonoTime,
}

impl SessionState for View<'_> {
    fn is_confirmed(&self, bucket: usize, at: EndpointId) -> bool {
        let Some(session) = self.sessions.get(at) else {
            return true;
        };
        self.buckets[bucket]
            .keys
            .iter()
            .all(|key| session.is_confirmed(*key))
    }

    fn has_directive(&self, bucket: usize, at: EndpointId) -> bool {
        let name = &self.names[bucket];
        if self.directives.get(name).is_none() {
            return true;
        }
        let posted = self
            .sessions
            .get(at)
            .and_then(|session| session.stream.received.get(name));
        posted.is_some_and(|posted| {
            let has_value = |values: Values| values.ratio.is_some() || values.guard.is_some();
            posted.terms().limit.per_second().is_none()
                || posted.keys().any(|(_, values)| has_value(values))
        })
    }

    fn reaches_controller(&self, at: EndpointId) -> bool {
        let age = self
            .sessions
            .get(at)
            .and_then(|session| session.upstream_age(self.now));
        age.is_some_and(|age| age <= CONTROLLER_SILENT_AFTER)
    }
}
