//! Room for buckets: buckets that the policy names always have it. Buckets that children ask for are bounded, in
//! all and per child, and are dropped when they are idle.

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_core::directive::BucketDirective;
use plimsoll_core::exchange::{LatestNames, StreamId, UNUSED};
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Report, Role, SubscriptionChanges};

use super::Zone;

/// Interval between two searches for idle buckets.
const SWEEP: Duration = Duration::from_secs(10);
/// The same while there is no room for another bucket that children ask for.
const SWEEP_IF_FULL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Room {
    /// Buckets that found no room.
    pub(crate) refused: LatestNames,
    per_client_max: usize,
    /// The time of the latest search for idle buckets.
    swept: MonoTime,
}

impl Room {
    pub(super) fn new(per_client_max: usize) -> Self {
        Self {
            refused: LatestNames::default(),
            per_client_max,
            swept: MonoTime::ZERO,
        }
    }
}

impl Zone {
    /// Subscribes a child to the buckets in its report. Buckets that are new here are asked of the parent.
    pub(super) fn subscribe(&mut self, now: MonoTime, stream: StreamId, report: &Report) {
        let SubscriptionChanges { added, ended } = &report.subscriptions;
        if added.is_empty() && ended.is_empty() && report.definitions.is_empty() {
            return;
        }
        if self.upstream.subscriptions.is_full() {
            self.drop_idle_buckets(now);
        }
        let Some(child) = self.downstream.sessions.by_stream(stream) else {
            debug_assert!(false, "{stream:?} has no session");
            return;
        };
        ended.iter().for_each(|bucket| child.unsubscribe(bucket));
        let subscriptions = &mut self.upstream.subscriptions;
        let max = subscriptions.max_of(
            child.identity.role == Role::Client,
            self.room.per_client_max,
        );
        let is_named = |bucket: &Bucket| {
            self.board
                .get(bucket)
                .is_some_and(|posted| posted.terms().named)
        };
        let taken = child
            .subscriptions()
            .filter(|bucket| !is_named(bucket))
            .count();
        let mut places = max.saturating_sub(taken);
        let of_keys = report
            .definitions
            .values()
            .map(|definition| &definition.key.bucket);
        let mut before = None;
        for bucket in added.iter().chain(of_keys) {
            // The keys of a bucket often follow each other.
            if before.replace(bucket) == Some(bucket) {
                continue;
            }
            if !is_named(bucket) {
                let is_new = !child.is_subscribed(bucket);
                if is_new && places == 0 || !subscriptions.ask(now, bucket) {
                    self.counters.rejected += 1;
                    self.room.refused.note(now, bucket);
                    continue;
                }
                places -= usize::from(is_new);
            }
            self.room.refused.remove(bucket);
            if child.identity.role == Role::Client && !child.is_subscribed(bucket) {
                self.downstream
                    .newcomers
                    .on_subscription(now, child.identity.instance, bucket);
            }
            child.subscribe(bucket);
            // The class that tenants fold into must find room before they do.
            if let Some(line) = self.keys.declare(bucket, &mut self.upstream.outbox) {
                self.fast_loop
                    .open(line, &self.keys.lines.keys()[line.index()]);
            }
        }
    }

    /// Notes why a bucket of a directive is held: the policy names it, or children ask for it. Returns false for a
    /// bucket that was dropped in the meantime.
    pub(super) fn admit(&mut self, now: MonoTime, directive: &BucketDirective) -> bool {
        let bucket = &directive.bucket;
        let held = self.board.get(bucket).map(|posted| posted.terms().named);
        if directive.terms.named {
            self.upstream.subscriptions.on_named(bucket);
            self.room.refused.remove(bucket);
            if held != Some(true) {
                self.downstream.subscribe_aggregators(bucket);
            }
        } else if held == Some(true) {
            self.upstream.subscriptions.keep(now, bucket);
        }
        directive.terms.named || held.is_some() || self.upstream.subscriptions.contains(bucket)
    }

    /// Drops the buckets that the policy does not name, that no child is subscribed to and that have
    /// no traffic, once all of their counts are confirmed.
    pub(super) fn drop_idle_buckets(&mut self, now: MonoTime) {
        // If others need the room, a bucket that no child asks for now is dropped without the usual wait.
        let is_full = self.upstream.subscriptions.is_full();
        let (interval, unused_for) = if is_full {
            (SWEEP_IF_FULL, Duration::ZERO)
        } else {
            (SWEEP, UNUSED)
        };
        if now.since(self.room.swept) < interval {
            return;
        }
        self.room.swept = now;
        self.room.refused.prune(now);
        let subscriptions = &mut self.upstream.subscriptions;
        for child in self.downstream.sessions.connected() {
            child
                .subscriptions()
                .for_each(|bucket| subscriptions.on_use(now, bucket));
        }
        let unused: Vec<Bucket> = subscriptions.unused(now, unused_for).cloned().collect();
        let gone: BTreeSet<Bucket> = unused
            .into_iter()
            .filter(|bucket| self.keys.retire(bucket))
            .collect();
        if gone.is_empty() {
            return;
        }
        self.upstream.subscriptions.remove(&gone);
        self.board.remove(&gone);
        self.modes.remove(&gone);
        self.fast_loop.remove_buckets(&gone);
        self.downstream.remove_buckets(&gone);
    }
}
