//! The log of aggregators that go stale, expire or return, and of two processes under one name. Connections
//! and farewells are logged by the driver of their streams.

use std::collections::BTreeSet;

use plimsoll_admin::other_controllers;
use plimsoll_proto::shared::Shared;

use crate::aggregators::Place;
use crate::aggregators::leadership::LostLead;
use crate::brain::Brain;

/// The aggregators in each state that is logged.
#[derive(Debug, Default)]
struct Snapshot {
    registered: BTreeSet<Place>,
    stale: BTreeSet<Place>,
    expired: BTreeSet<Place>,
    in_conflict: BTreeSet<Place>,
}

/// Logs every change, beginning with the aggregators that expired before the start.
pub(crate) async fn follow(brain: Shared<Brain>) {
    let mut wakeups = brain.changes();
    let mut logged = Snapshot::default();
    while wakeups.changed().await.is_ok() {
        let (current, cut, others, lost) = brain.with(|brain, now| {
            let others = brain.leadership.others.take_unlogged(now);
            let lost = brain.leadership.take_unlogged(now);
            (Snapshot::of(brain), brain.sessions.take_cut(), others, lost)
        });
        other_controllers::log(others);
        if let Some(LostLead { to, through }) = lost {
            tracing::error!(
                epoch = to.epoch.0,
                instance = to.instance.map(tracing::field::debug),
                through,
                "another controller leads: this one sends no values, and its zones live on their holds. Stop one of the two; if \
                 this one stays, restart it"
            );
        }
        for (aggregator, requests) in cut {
            tracing::warn!(
                zone = %aggregator.zone, aggregator = %aggregator.name, requests,
                "counts cut: the aggregator reported more requests than its clients can have decided; see \
                 --decisions-per-s-max"
            );
        }
        current.log(&logged);
        logged = current;
    }
}

impl Snapshot {
    fn of(brain: &Brain) -> Self {
        let in_conflict =
            brain.aggregators.iter().filter(|(_, aggregator)| brain.has_name_conflict(aggregator));
        Self {
            registered: brain.aggregators.iter().map(|(place, _)| place.clone()).collect(),
            stale: brain.stale_aggregators(),
            expired: brain.durable().expired.iter().map(|expired| expired.place()).collect(),
            in_conflict: in_conflict.map(|(place, _)| place.clone()).collect(),
        }
    }

    /// Logs what has changed since `before`.
    fn log(&self, before: &Self) {
        for (zone, aggregator) in self.stale.difference(&before.stale) {
            tracing::warn!(
                %zone, %aggregator,
                "aggregator stale: it has sent no report for too long; canaries return to shadow, enforced buckets keep its \
                 last allocation"
            );
        }
        for (zone, aggregator) in self.expired.difference(&before.expired) {
            tracing::error!(
                %zone, %aggregator,
                "aggregator expired: it is gone without a farewell, and its share is released to the others. If its clients \
                 live, the fleet admits more than the limits. Start it again, or run `plimsoll forget {zone}/{aggregator}`"
            );
        }
        for (zone, aggregator) in before.stale.difference(&self.stale) {
            if self.registered.contains(&(zone.clone(), aggregator.clone())) {
                tracing::info!(%zone, %aggregator, "aggregator no longer stale: it reports again");
            } else {
                tracing::info!(%zone, %aggregator, "aggregator no longer listed: it left, was forgotten, or was gone for 7 days");
            }
        }
        for (zone, aggregator) in self.in_conflict.difference(&before.in_conflict) {
            tracing::error!(
                %zone, %aggregator,
                "two aggregators have one name: two processes with this zone and name replace each other. Give each its own \
                 --name"
            );
        }
        for (zone, aggregator) in before.in_conflict.difference(&self.in_conflict) {
            tracing::info!(%zone, %aggregator, "conflict of aggregator names over: none has replaced the other for 60 s");
        }
    }
}
