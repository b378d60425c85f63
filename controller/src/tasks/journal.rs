//! Logs what changes in the brain by itself: aggregators that go stale, expire or return, other controllers, stages of
//! rollouts and boosts that end. Returns of canaries to shadow by their gate are also recorded in the audit log.

use std::collections::BTreeSet;

use plimsoll_admin::other_controllers;
use plimsoll_host::Shared;
use plimsoll_policy::Policy;

use crate::aggregators::Place;
use crate::aggregators::leadership::LostLead;
use crate::audit::{Actor, AuditLog, Entry};
use crate::brain::Brain;
use crate::state::{Cause, Change};

#[derive(Debug, Default)]
struct Snapshot {
    registered: BTreeSet<Place>,
    stale: BTreeSet<Place>,
    expired: BTreeSet<Place>,
    in_conflict: BTreeSet<Place>,
}

pub(crate) async fn follow(brain: Shared<Brain>, audit: AuditLog) {
    let mut wakeups = brain.changes();
    let mut logged = Snapshot::default();
    let (mut number, mut since_s) =
        brain.with(|brain, _| (brain.durable().changes, brain.durable().ticked_s));
    while wakeups.changed().await.is_ok() {
        let (current, others, lost, cut, changes) = brain.with(|brain, now| {
            let others = brain.leadership.others.take_unlogged(now);
            let (lost, cut) = (
                brain.leadership.take_unlogged(now),
                brain.downstream.sessions.take_cut(),
            );
            let now_s = brain.durable().ticked_s;
            if let (Some(since_s), Some(now_s)) = (since_s, now_s) {
                log_ended_boosts(brain.policy(), since_s, now_s);
            }
            since_s = now_s;
            let changes = brain
                .durable()
                .history
                .iter()
                .rev()
                .take_while(|change| change.number > number);
            (
                Snapshot::of(brain),
                others,
                lost,
                cut,
                changes.cloned().collect::<Vec<Change>>(),
            )
        });
        other_controllers::log(others);
        lost.iter().for_each(log_lost_lead);
        for (aggregator, requests) in cut {
            tracing::warn!(
                zone = %aggregator.zone, aggregator = %aggregator.name, requests,
                "counts cut: the aggregator reported more requests than its clients can have decided; see \
                 --decisions-per-s-max"
            );
        }
        current.log(&logged);
        logged = current;
        for change in changes.iter().rev() {
            number = change.number;
            log_change(change);
            if matches!(change.cause, Cause::Breach | Cause::Stale) {
                audit.note(
                    Actor::controller("gate", ""),
                    Entry::of_change("return", change),
                );
            }
        }
    }
}

fn log_lost_lead(LostLead { to, through }: &LostLead) {
    tracing::error!(
        epoch = to.epoch.0,
        instance = to.instance.map(tracing::field::debug),
        through,
        "another controller leads: this one sends no values, and its zones live on their holds. Stop one of the two; if \
         this one stays, restart it"
    );
}

fn log_ended_boosts(policy: &Policy, since_s: i64, now_s: i64) {
    for (tenant, boost) in policy.boosts_ended(since_s, now_s) {
        let (factor, weight) = (boost.factor, policy.tenant(tenant).weight.get());
        tracing::info!(%tenant, factor, weight, "boost ended");
    }
}

fn log_change(change: &Change) {
    let Change {
        entry,
        to,
        cause,
        why,
        ..
    } = change;
    let (from, why) = (change.from.map(|from| from.as_str()), why.join("; "));
    match cause {
        Cause::Edit | Cause::Drift | Cause::Reset => {
            tracing::info!(entry, mode = %to, cause = cause.as_str(), why, "rollout evidence begins anew");
        }
        Cause::Breach | Cause::Stale | Cause::Lost | Cause::Forced | Cause::Resume => {
            tracing::warn!(entry, from, %to, cause = cause.as_str(), why, "stage changed");
        }
        _ => tracing::info!(entry, from, %to, cause = cause.as_str(), why, "stage changed"),
    }
}

impl Snapshot {
    fn of(brain: &Brain) -> Self {
        let in_conflict = brain
            .downstream
            .aggregators
            .iter()
            .filter(|(_, aggregator)| brain.has_name_conflict(aggregator));
        Self {
            registered: brain
                .downstream
                .aggregators
                .iter()
                .map(|(place, _)| place.clone())
                .collect(),
            stale: brain.stale_aggregators(),
            expired: brain
                .durable()
                .expired
                .iter()
                .map(|expired| expired.place())
                .collect(),
            in_conflict: in_conflict.map(|(place, _)| place.clone()).collect(),
        }
    }

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
            if self
                .registered
                .contains(&(zone.clone(), aggregator.clone()))
            {
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
