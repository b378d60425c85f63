//! The brain as the parent of aggregators: takes their reports, and answers with directives.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::directive::{Board, Message, take_answers};
use plimsoll_core::exchange::sessions::Head;
use plimsoll_core::exchange::{NAMES_MAX, Parent, StreamId, StreamRejected};
use plimsoll_core::names::{Bucket, Tenant};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Echo, Entered, Origin, Report, Role};

use super::{Brain, CHILDREN_MAX};
use crate::aggregators::leadership::Mandate;
use crate::aggregators::{AggregatorKey, place_of};
use crate::bucket::Listing;

/// Answers that wait for one aggregator, at most.
const ANSWERS_MAX: usize = 100_000;

impl Parent for Brain {
    fn on_report(
        &mut self,
        now: MonoTime,
        stream: StreamId,
        report: Report,
    ) -> Result<bool, StreamRejected> {
        // Every check that can refuse the report is first, so that a refused report changes nothing. The errors of
        // `greet` and `enter` only repeat these checks and cannot occur.
        let child = self.downstream.sessions.check(stream, &report)?.clone();
        let place = place_of(&child);
        if child.role != Role::Aggregator {
            return Err(StreamRejected::WrongTier(
                "a controller takes aggregators; connect the client to an aggregator of its zone (port 7410)",
            ));
        }
        report
            .path
            .check(self.downstream.sessions.own(), child.instance, 0, true)?;
        let greets = report.greeting.identity.is_some();
        if greets
            && self.downstream.aggregators.len() >= CHILDREN_MAX
            && !self.downstream.aggregators.contains(&place)
        {
            return Err(StreamRejected::Full(CHILDREN_MAX));
        }
        let revision = self.downstream.aggregators.revision;
        if greets {
            self.greet(now, stream, &report)?;
        }
        // An earlier part: only definitions and tallies, never the greeting. The last part has the rest.
        if report.more {
            if self.ensure_buckets(now, stream, &report) {
                self.assign_holds();
            }
            self.enter(now, stream, &place, &report)?;
            return Ok(self.downstream.aggregators.revision != revision);
        }
        if let Some(next) = self
            .leadership
            .on_report(now, self.durable.epoch, &place, report.lead)
        {
            self.note_older_state(now, &place, next);
            self.durable.epoch = next;
            self.pending_saves.note_change(true);
        }
        let is_new_drill = self.learn_kills(now, &child, &report);
        let has_new_buckets = self.ensure_buckets(now, stream, &report);
        if greets || has_new_buckets || self.downstream.aggregators.revision != revision {
            self.assign_holds();
        }
        self.enter(now, stream, &place, &report)?;
        self.answer(&place, &report.names.asked);
        if report.leaving {
            self.dismiss(&place);
        }
        Ok(!self.is_saved() || self.downstream.aggregators.revision != revision || is_new_drill)
    }

    fn on_close(&mut self, now: MonoTime, stream: StreamId) {
        self.downstream
            .sessions
            .close(now, stream)
            .into_iter()
            .for_each(|gone| self.kills.on_close(gone));
    }

    fn message(&mut self, now: MonoTime, stream: StreamId) -> Option<Message> {
        // A decision is saved before it is sent, so that no restart can take it back, unless saving fails.
        if !self.is_in_effect() {
            return None;
        }
        // An elected controller sends what it could not save as if another one led, which does not know it.
        let is_elected = self.leadership.mandate != Mandate::Directory;
        let unconfirmed = self.leadership.is_unconfirmed() || is_elected && !self.is_saved();
        let child = self.downstream.sessions.by_stream(stream)?;
        let covered = child.books.seq();
        let mut head = Head::of(self.kills.kills());
        if self.leadership.lost().is_some() {
            // As a parent without a controller: children live on their holds, and kills still reach them.
            let echo = Echo {
                covered,
                confirmed: 0,
            };
            return child.next_message(
                now,
                head,
                &mut Board::default(),
                false,
                echo,
                self.kills.kills(),
            );
        }
        head.lead.leader = Some(self.leadership.leader(self.durable.epoch));
        head.lead.policy_hash = Some(self.policies.in_force.hash().as_u64());
        head.lead.unconfirmed = unconfirmed;
        let echo = Echo {
            covered,
            confirmed: covered,
        };
        let place = place_of(&child.identity);
        let aggregator = self.downstream.aggregators.by_place.get_mut(&place)?;
        let board = &mut aggregator.board;
        let mut message = child.next_message(now, head, board, true, echo, self.kills.kills())?;
        // Before this controller knows the rates of all zones, each keeps the parts that an earlier one gave it.
        let knows_rates = self.downstream.takeover.leading && aggregator.served;
        message.head.limits = knows_rates.then(|| aggregator.limits.clone());
        message.head.catalogue.hash = self.policies.in_force.catalogue().map(|it| it.hash());
        message.head.catalogue.names = take_answers(&mut aggregator.catalogued);
        message.head.children = self.downstream.aggregators.clients(&place);
        message.head.kills.orders = self.unsaved_orders(now);
        message.head.upstream_age = Some(Duration::ZERO);
        Some(message)
    }

    fn is_superseded(&self, stream: StreamId) -> bool {
        self.downstream.sessions.is_superseded(stream)
    }

    fn children_max(&self) -> usize {
        CHILDREN_MAX
    }
}

impl Brain {
    /// Adds the counts and the evidence of a report, or of a part of one.
    fn enter(
        &mut self,
        now: MonoTime,
        stream: StreamId,
        place: &AggregatorKey,
        report: &Report,
    ) -> Result<(), StreamRejected> {
        let mut entering = self.keys.entering();
        let entered = self
            .downstream
            .sessions
            .enter(now, stream, report, &mut entering);
        let entered = Entered {
            entries: entering.entries,
            ..entered.ok_or(StreamRejected::Unknown)?
        };
        self.note_late(&entered);
        self.introduce_keys();
        self.note_counts(&entered);
        self.downstream.aggregators.enter(place, report, &entered);
        self.downstream
            .liveness
            .on_report(self.clock.progress.now(), place);
        self.record_evidence(stream, report, &entered, place);
        Ok(())
    }

    /// Answers what the catalogue says of names, with the next messages.
    fn answer(&mut self, place: &AggregatorKey, asked: &[Tenant]) {
        let Some(aggregator) = self.downstream.aggregators.by_place.get_mut(place) else {
            return;
        };
        let room = ANSWERS_MAX.saturating_sub(aggregator.catalogued.len());
        for tenant in asked.iter().take(room) {
            let class = self.rows.answer(&self.policies.in_force, tenant);
            aggregator.catalogued.push((tenant.clone(), class));
        }
    }

    /// Adds the new counts of a report to the figures of their buckets, without late counts and counts that
    /// another parent had before.
    fn note_counts(&mut self, entered: &Entered) {
        for entry in entered
            .entries
            .iter()
            .filter(|entry| entry.origin == Origin::Observed)
        {
            let counts = entry.delta.counts.since(entry.delta.late);
            let Some(id) = entry.own else { continue };
            let key = self.keys.key(id);
            if let Some(bucket) = self.buckets.states.get_mut(&key.bucket) {
                bucket.admissions.add(counts);
                let refusals = bucket.note_refusals(&key.tenant, counts);
                self.buckets
                    .refusals
                    .add(&key.bucket, &key.tenant, refusals);
            }
        }
    }

    /// Opens the session of an aggregator. Its place is saved, so that after a restart this controller waits for the
    /// aggregator.
    fn greet(
        &mut self,
        now: MonoTime,
        stream: StreamId,
        report: &Report,
    ) -> Result<(), StreamRejected> {
        let identity = report
            .greeting
            .identity
            .clone()
            .ok_or(StreamRejected::Greeting)?;
        let (place, instance) = (place_of(&identity), identity.instance);
        let child = self.downstream.sessions.open(now, stream, identity)?;
        self.policies
            .in_force
            .exact_buckets()
            .for_each(|(bucket, _)| child.subscribe(bucket));
        let progress = self.clock.progress.now();
        if let Some(replaced) = self.downstream.aggregators.greet(
            progress,
            place.clone(),
            instance,
            report.greeting.holds.clone(),
        ) {
            self.downstream.sessions.remove(replaced);
            self.buckets
                .states
                .values_mut()
                .for_each(|bucket| bucket.on_replaced(&place));
        }
        let returned = self.durable.expired.remove(&place);
        self.pending_saves.note_wanted(returned);
        let is_new = self.durable.children.insert(place);
        self.pending_saves.note_change(is_new);
        Ok(())
    }

    /// Subscribes the aggregator to the buckets in its report, and ends the subscriptions that it gives up. Returns
    /// true if it is newly subscribed to a bucket that the policy covers.
    fn ensure_buckets(&mut self, now: MonoTime, stream: StreamId, report: &Report) -> bool {
        let policy = Arc::clone(&self.policies.in_force);
        let Some(child) = self.downstream.sessions.by_stream(stream) else {
            return false;
        };
        for bucket in report
            .subscriptions
            .ended
            .iter()
            .filter(|bucket| !policy.is_exact(bucket))
        {
            child.unsubscribe(bucket);
        }
        let of_keys = report
            .definitions
            .values()
            .map(|definition| &definition.key.bucket);
        let (mut latest, mut any_new, mut unlisted) = (None, false, Vec::new());
        let (mut child_room, mut fleet_room) = (None, None);
        for bucket in report.subscriptions.added.iter().chain(of_keys) {
            // The keys of a bucket often follow each other.
            if latest.replace(bucket) == Some(bucket) {
                continue;
            }
            let Some(child) = self
                .downstream
                .sessions
                .by_stream(stream)
                .filter(|child| !child.is_subscribed(bucket))
            else {
                continue;
            };
            match Listing::of(&policy, bucket) {
                Listing::Exact => child.subscribe(bucket),
                Listing::None => {
                    unlisted.push(bucket);
                    continue;
                }
                Listing::Pattern => {
                    let patterned = |name: &Bucket| {
                        self.buckets
                            .states
                            .get(name)
                            .is_some_and(|it| it.listing == Listing::Pattern)
                    };
                    let taken = || child.subscriptions().filter(|name| patterned(name)).count();
                    let child_room = child_room.get_or_insert_with(|| {
                        self.buckets.per_child_max().saturating_sub(taken())
                    });
                    let fleet_room = fleet_room.get_or_insert_with(|| self.buckets.room());
                    let is_known = self.buckets.states.contains_key(bucket);
                    if *child_room == 0 || !is_known && *fleet_room == 0 {
                        self.buckets.no_room.note(now, bucket);
                        continue;
                    }
                    *child_room -= 1;
                    child.subscribe(bucket);
                    if !is_known {
                        *fleet_room -= 1;
                        self.add_bucket(bucket, Listing::Pattern);
                    }
                }
            }
            any_new = true;
        }
        self.note_unlisted(now, stream, &unlisted);
        any_new
    }

    /// Remembers the latest names that the policy does not cover. The aggregator is subscribed to them, so that it is
    /// told the most similar name in the policy, if there is one.
    fn note_unlisted(&mut self, now: MonoTime, stream: StreamId, names: &[&Bucket]) {
        let skipped = names.len().saturating_sub(NAMES_MAX);
        self.buckets.unlisted.count += skipped as u64;
        let mut displaced = BTreeSet::new();
        for name in names.iter().skip(skipped) {
            displaced.extend(self.buckets.unlisted.note(now, name));
            if let Some(child) = self.downstream.sessions.by_stream(stream) {
                child.subscribe(name);
            }
        }
        if !displaced.is_empty() {
            self.downstream.sessions.unsubscribe(&displaced);
            self.downstream.aggregators.remove_buckets(&displaced);
        }
    }
}
