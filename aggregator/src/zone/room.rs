//! Room for buckets: those that the policy names always have it, and those that children ask for are bounded
//! per child and leave when they are idle.

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_core::directive::BucketDirective;
use plimsoll_core::exchange::{Asker, NoRoom, StreamId};
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Report, Role};

use super::Zone;

/// The interval of the search for idle buckets.
const SWEEP: Duration = Duration::from_secs(10);

/// The buckets without room, and the search for idle ones.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) refused: NoRoom,
    per_client_max: usize,
    swept: MonoTime,
}

impl Room {
    pub(super) fn new(per_client_max: usize) -> Self {
        Self { refused: NoRoom::default(), per_client_max, swept: MonoTime::ZERO }
    }
}

impl Zone {
    /// Subscribes a child to the buckets in its report. Buckets that are new here are asked of the parent.
    pub(super) fn subscribe(&mut self, now: MonoTime, stream: StreamId, report: &Report) {
        let Some(child) = self.downstream.sessions.by_stream(stream) else {
            debug_assert!(false, "{stream:?} has no session");
            return;
        };
        report.unsubscriptions.iter().for_each(|bucket| child.unsubscribe(bucket));
        let subscriptions = &mut self.upstream.subscriptions;
        let max = subscriptions.max_of(child.identity.role == Role::Client, self.room.per_client_max);
        let mut asker = None;
        let of_keys = report.definitions.values().map(|definition| &definition.key.bucket);
        let mut before = None;
        for bucket in report.subscriptions.iter().chain(of_keys) {
            // The keys of a bucket often follow each other.
            if before.replace(bucket) == Some(bucket) {
                continue;
            }
            if !self.board.get(bucket).is_some_and(|posted| posted.terms().named) {
                let asker = asker.get_or_insert_with(|| Asker::from(&child.identity));
                if !subscriptions.ask(now, asker, max, bucket) {
                    self.counters.rejected += 1;
                    self.room.refused.on_refused(now, asker, bucket);
                    continue;
                }
            }
            self.room.refused.on_room(bucket);
            if child.identity.role == Role::Client && !child.is_subscribed(bucket) {
                self.downstream.newcomers.on_subscription(now, child.identity.instance, bucket);
            }
            child.subscribe(bucket);
            // The class that tenants fold into must find room before they do.
            if let Some(line) = self.keys.declare(bucket, &mut self.upstream.outbox) {
                self.fast_loop.open(line, &self.keys.lines.keys()[line.index()]);
            }
        }
    }

    /// Notes why a bucket of a directive is held. Returns false for one that was dropped in the meantime.
    pub(super) fn admit(&mut self, now: MonoTime, directive: &BucketDirective) -> bool {
        let bucket = &directive.bucket;
        let held = self.board.get(bucket).map(|posted| posted.terms().named);
        if directive.terms.named {
            self.upstream.subscriptions.on_named(bucket);
            self.room.refused.on_room(bucket);
            if held != Some(true) {
                self.downstream.subscribe_aggregators(bucket);
            }
        } else if held == Some(true) {
            self.upstream.subscriptions.keep(now, bucket);
        }
        directive.terms.named || held.is_some() || self.upstream.subscriptions.contains(bucket)
    }

    /// Drops the buckets that the policy does not name, that no child has asked for within a lease and that
    /// have no traffic, once all of their counts are confirmed.
    pub(super) fn drop_idle_buckets(&mut self, now: MonoTime) {
        if now.since(self.room.swept) < SWEEP {
            return;
        }
        self.room.swept = now;
        self.room.refused.prune(now);
        let lapsed: Vec<Bucket> = self.upstream.subscriptions.lapsed(now).cloned().collect();
        let gone: BTreeSet<Bucket> = lapsed.into_iter().filter(|bucket| self.keys.retire(bucket)).collect();
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
