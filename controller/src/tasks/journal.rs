//! Adds events of what changes in the brain by itself: aggregators that are lost or return, other controllers, stages of
//! rollouts, boosts. Returns of canaries to shadow by their gate are also recorded in the audit log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_admin::other_controllers;
use plimsoll_core::law::presence;
use plimsoll_core::quantity::Rate;
use plimsoll_policy::Policy;

use crate::admin::Commands;
use crate::aggregators::AggregatorKey;
use crate::aggregators::leadership::LostLead;
use crate::audit::{Actor, Entry};
use crate::brain::{Brain, display};
use crate::state::{Cause, Change};
use crate::tasks::events::{Event, EventKind};

/// Maximum number of buckets that an event names with their shares.
const SHARES_MAX: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Presence {
    /// Known from before the start of this process, and not connected since.
    Awaited,
    Connected,
    /// Without a stream, after it was connected to this process or lost by an earlier one.
    Away,
    /// Without a report for too long.
    Stale,
    /// Its share was released.
    Expired,
}

/// The parts of the brain's state whose changes are events.
#[derive(Debug)]
pub(crate) struct Snapshot {
    aggregators: BTreeMap<AggregatorKey, Presence>,
    /// The shares of expired aggregators, as text.
    released: BTreeMap<AggregatorKey, String>,
    in_conflict: BTreeSet<AggregatorKey>,
    lost_lead: Option<LostLead>,
    policy: Arc<Policy>,
    /// The time of the last tick in seconds since 1970; `None` before the first one.
    ticked_s: Option<i64>,
    is_quota_store_down: bool,
}

/// Adds the events of each change of the brain, as long as the brain lives.
pub(crate) async fn follow(
    Commands {
        brain,
        audit,
        events,
    }: Commands,
) {
    let mut wakeups = brain.changes();
    let (mut before, mut number) =
        brain.with(|brain, _| (Snapshot::of(brain, None), brain.durable().changes));
    before.recall_lost(&events.latest(usize::MAX));
    while wakeups.changed().await.is_ok() {
        let (current, others, cut, changes) = brain.with(|brain, now| {
            let others = brain.leadership.others.take_unlogged(now);
            let cut = brain.downstream.sessions.take_cut();
            let changes = brain.durable().history.iter();
            let changes = changes.skip_while(|change| change.number <= number);
            let changes: Vec<Change> = changes.cloned().collect();
            (Snapshot::of(brain, Some(&before)), others, cut, changes)
        });
        other_controllers::log(others);
        for (aggregator, requests) in cut {
            tracing::warn!(
                zone = %aggregator.zone, aggregator = %aggregator.name, requests,
                "counts cut: the aggregator reported more requests than its clients can have decided; see \
                 --decisions-per-s-max"
            );
        }
        current.since(&before).for_each(|event| events.add(event));
        before = current;
        for change in &changes {
            number = change.number;
            if matches!(change.cause, Cause::Breach | Cause::Stale) {
                let entry = Entry::of_change("return", change);
                audit.note(Actor::controller("gate", ""), entry);
            }
            // The route of a command adds its event, with the caller.
            let is_operators = matches!(
                change.cause,
                Cause::Promote | Cause::Forced | Cause::Abort | Cause::Resume | Cause::Reset
            );
            if !is_operators {
                of_stage(change)
                    .into_iter()
                    .for_each(|event| events.add(event));
            }
        }
    }
}

/// Returns the event of a change of a stage; `None` if another event says it.
pub(crate) fn of_stage(change: &Change) -> Option<Event> {
    let Change { entry, to, .. } = change;
    let moved = match change.from.filter(|from| from != to) {
        Some(from) => format!("{entry} moved from {from} to {to}"),
        None => format!("{entry} stays in {to}"),
    };
    let why = change.why.join("; ");
    let (kind, text, why) = match change.cause {
        // The policy, the kill or the loss has an event.
        Cause::Appeared | Cause::Kill | Cause::Lost => return None,
        Cause::Gate => (
            EventKind::Promoted,
            format!("{moved}, because its gate passed"),
            why,
        ),
        Cause::Promote => (EventKind::Promoted, moved, why),
        Cause::Resume => (
            EventKind::Promoted,
            format!("{moved}, where it was before the kill"),
            why,
        ),
        Cause::Forced => {
            // The reason of the operator, then what speaks against it.
            let (reason, against) = change.why.split_first().unzip();
            let against = against.map(|against| against.join("; "));
            let text = format!(
                "{moved} by force, although its gate did not pass: {}",
                against.unwrap_or_default()
            );
            (
                EventKind::Promoted,
                text,
                reason.cloned().unwrap_or_default(),
            )
        }
        Cause::Abort => (EventKind::Aborted, moved, why),
        Cause::Breach => (
            EventKind::Breached,
            format!("{moved}, because its gate failed"),
            why,
        ),
        Cause::Stale => (EventKind::ReturnedStale, moved, why),
        Cause::File => (EventKind::ModeEdited, moved, why),
        Cause::Recovered => (EventKind::ModeRecovered, moved, why),
        Cause::Edit | Cause::Drift | Cause::Reset => {
            let text = format!("rollout evidence of {entry} begins anew in {to}");
            (EventKind::EvidenceRenewed, text, why)
        }
    };
    Some(Event::new(kind, entry, text).why(why))
}

impl Snapshot {
    pub(crate) fn of(brain: &Brain, before: Option<&Self>) -> Self {
        let stale = brain.stale_aggregators();
        let away: BTreeSet<AggregatorKey> = brain.aggregators_away().collect();
        let expired = brain.durable().expired.iter();
        let released: BTreeMap<AggregatorKey, String> = expired
            .map(|expired| (expired.place(), shares(&expired.released)))
            .collect();
        let standing = |place: AggregatorKey| {
            let earlier = before.and_then(|before| before.aggregators.get(&place));
            let standing = if released.contains_key(&place) {
                Presence::Expired
            } else if stale.contains(&place) {
                Presence::Stale
            } else if !away.contains(&place) {
                Presence::Connected
            } else if before.is_none() || earlier == Some(&Presence::Awaited) {
                Presence::Awaited
            } else {
                Presence::Away
            };
            (place, standing)
        };
        let aggregators = brain.downstream.aggregators.iter();
        let in_conflict = aggregators.filter(|(_, aggregator)| brain.has_name_conflict(aggregator));
        Self {
            aggregators: brain
                .known_aggregators()
                .into_iter()
                .map(standing)
                .collect(),
            in_conflict: in_conflict.map(|(place, _)| place.clone()).collect(),
            lost_lead: brain.leadership.lost().cloned(),
            policy: Arc::clone(brain.policy()),
            ticked_s: brain.durable().ticked_s,
            released,
            is_quota_store_down: brain.clients().quota_store_down > 0,
        }
    }

    /// Takes the aggregators that these events of an earlier process tell lost for lost, so that their return is told too.
    pub(crate) fn recall_lost(&mut self, events: &[Event]) {
        use EventKind::{AggregatorJoined, AggregatorLost, AggregatorReturned, AggregatorStale};
        let mut lost = BTreeSet::new();
        for Event { kind, subject, .. } in events {
            match kind {
                AggregatorLost | AggregatorStale => _ = lost.insert(subject.as_str()),
                AggregatorJoined | AggregatorReturned => _ = lost.remove(subject.as_str()),
                _ => {}
            }
        }
        for (place, presence) in &mut self.aggregators {
            if *presence == Presence::Awaited && lost.contains(display(place).as_str()) {
                *presence = Presence::Away;
            }
        }
    }

    /// Returns the events since an earlier snapshot.
    pub(crate) fn since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = Event> + 'a {
        self.of_aggregators(before)
            .chain(self.of_conflicts(before))
            .chain(self.of_lead(before))
            .chain(self.of_boosts(before))
            .chain(self.of_quota_store(before))
    }

    fn of_quota_store(&self, before: &Self) -> Option<Event> {
        let (kind, text) = match (before.is_quota_store_down, self.is_quota_store_down) {
            (false, true) => (
                EventKind::QuotaStoreLost,
                "clients get no answer from their store of exact quotas",
            ),
            (true, false) => (
                EventKind::QuotaStoreReturned,
                "the store of exact quotas answers all clients again",
            ),
            _ => return None,
        };
        Some(Event::new(kind, "quotas", text))
    }

    fn of_aggregators<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = Event> + 'a {
        use Presence::{Awaited, Away, Connected, Expired, Stale};
        let places: BTreeSet<&AggregatorKey> = self
            .aggregators
            .keys()
            .chain(before.aggregators.keys())
            .collect();
        places.into_iter().filter_map(|place| {
            let name = display(place);
            let standing = |of: &Self| of.aggregators.get(place).copied();
            let (kind, text) = match (standing(before), standing(self)) {
                (was, is) if was == is => return None,
                (None, Some(Connected)) => {
                    (EventKind::AggregatorJoined, format!("aggregator {name} joined"))
                }
                (Some(Connected), None) => {
                    let text = format!("aggregator {name} shut down cleanly: its share is free");
                    (EventKind::AggregatorLeft, text)
                }
                (_, Some(Away)) => {
                    let (held_s, gone_s) = (presence::HELD.as_secs(), presence::GONE.as_secs());
                    let text = format!(
                        "aggregator {name} lost: its clients keep their last ratios; its share is held for {held_s} s, and goes to \
                         the others until second {gone_s}"
                    );
                    (EventKind::AggregatorLost, text)
                }
                (_, Some(Stale)) => {
                    let text = format!("aggregator {name} stale: it has sent no report for too long, so canaries return to shadow");
                    (EventKind::AggregatorStale, text)
                }
                (_, Some(Expired)) => {
                    let shares = self.released.get(place).map_or("", String::as_str);
                    let text = format!(
                        "aggregator {name} expired: its share{shares} is released to the others. If its clients live, the fleet \
                         admits more than the limits: start it again, or run `plimsoll forget {name}`"
                    );
                    (EventKind::AggregatorExpired, text)
                }
                (Some(Away | Stale | Expired), Some(Connected)) => {
                    (EventKind::AggregatorReturned, format!("aggregator {name} returned"))
                }
                // It is back after a restart of the controller, or a command has forgotten it.
                (_, Some(Connected | Awaited) | None) => return None,
            };
            Some(Event::new(kind, name, text))
        })
    }

    fn of_conflicts<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = Event> + 'a {
        let began = self.in_conflict.difference(&before.in_conflict).map(|place| {
            let name = display(place);
            let text = format!("two aggregators have one name, {name}, and replace each other: give each its own --name");
            Event::new(EventKind::AggregatorNameConflict, name, text)
        });
        let ended = before
            .in_conflict
            .difference(&self.in_conflict)
            .map(|place| {
                let name = display(place);
                let text = format!("only one aggregator is named {name} again");
                Event::new(EventKind::AggregatorNameSettled, name, text)
            });
        began.chain(ended)
    }

    fn of_lead<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = Event> + 'a {
        let lost = self.lost_lead.iter().filter(|_| before.lost_lead.is_none());
        lost.map(|LostLead { to, through }| {
            let text = format!(
                "another controller leads, in epoch {}, says {through}: this one sends no values, and its zones live on their \
                 holds. Stop one of the two; if this one stays, restart it",
                to.epoch.0
            );
            Event::new(EventKind::LeadLost, "controller", text)
        })
    }

    fn of_boosts<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = Event> + 'a {
        // No time passed before the second tick: no boost has ended, and all of the policy run.
        let (since_s, now_s) = before.ticked_s.zip(self.ticked_s).unwrap_or_default();
        let running = self.policy.boosts_ending(now_s, i64::MAX);
        let began = running
            .filter(|(tenant, boost)| before.policy.tenant(tenant).boost.as_ref() != Some(*boost));
        let began = began.map(|(tenant, boost)| {
            let text = format!(
                "boost of {tenant} began: its weight is {} times as high until {}",
                boost.factor, boost.until
            );
            Event::new(EventKind::BoostBegan, tenant, text)
        });
        let ended = self
            .policy
            .boosts_ending(since_s, now_s)
            .map(|(tenant, _)| {
                let weight = self.policy.tenant(tenant).weight.get();
                Event::new(
                    EventKind::BoostEnded,
                    tenant,
                    format!("boost ended: the weight of {tenant} is {weight} again"),
                )
            });
        // Those that an edit has ended before their time.
        let removed = before.policy.boosts_ending(now_s, i64::MAX);
        let removed = removed
            .filter(|(tenant, _)| self.policy.tenant(tenant).boost.is_none())
            .map(|(tenant, _)| {
                let text = format!("boost ended: the policy has none for {tenant} any more");
                Event::new(EventKind::BoostEnded, tenant, text)
            });
        began.chain(ended).chain(removed)
    }
}

/// The largest of the released shares, such as ` (checkout 333/s)`; nothing without any.
fn shares(released: &BTreeMap<plimsoll_core::names::Bucket, Rate>) -> String {
    let mut largest: Vec<_> = released.iter().collect();
    largest.sort_by(|(_, one), (_, other)| other.per_second().total_cmp(&one.per_second()));
    let shown = largest.iter().take(SHARES_MAX);
    let mut shown: Vec<String> = shown
        .map(|(bucket, rate)| format!("{bucket} {:.0}/s", rate.per_second()))
        .collect();
    if shown.is_empty() {
        return String::new();
    }
    let more = largest.len().saturating_sub(SHARES_MAX);
    shown.extend((more > 0).then(|| format!("{more} more buckets")));
    format!(" ({})", shown.join(", "))
}
