//! The brain as the parent of aggregators: takes their reports, and answers with directives.

use std::time::Duration;

use plimsoll_core::directive::{Epoch, Message};
use plimsoll_core::exchange::sessions::Head;
use plimsoll_core::exchange::{Parent, StreamId, StreamRejected};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Echo, Entered, Identity, Report, Role};

use super::{Brain, CHILDREN_MAX};

impl Parent for Brain {
    fn on_report(&mut self, now: MonoTime, stream: StreamId, report: Report) -> Result<bool, StreamRejected> {
        // Every check that can refuse the report comes first, so that a refused report changes nothing.
        let Identity { instance, role, zone, name, .. } = self.sessions.check(stream, &report)?;
        let (instance, place) = (*instance, (zone.clone(), name.clone()));
        if *role != Role::Aggregator {
            return Err(StreamRejected::WrongTier(
                "a controller takes aggregators; connect the client to an aggregator of its zone (port 7410)",
            ));
        }
        report.path.check(self.sessions.own(), instance, 0)?;
        let greets = report.identity.is_some();
        if greets && self.aggregators.len() >= CHILDREN_MAX && !self.aggregators.contains(&place) {
            return Err(StreamRejected::Full(CHILDREN_MAX));
        }
        StreamRejected::check_claims(&report, Some(self.durable.epoch), self.kills.kills())?;
        let revision = self.aggregators.revision;
        if greets {
            self.greet(now, stream, &report)?;
        }
        // This controller is the latest: its epoch must exceed every epoch that a child has seen.
        if let Some(claimed) = report.epoch.filter(|claimed| *claimed > self.durable.epoch) {
            self.durable.epoch = Epoch(claimed.0.saturating_add(1));
            self.pending_saves.note_change(true);
        }
        self.learn_kills(now, &report);
        let is_new_drill = self.join_drill(now, report.drill);
        let has_new_buckets = self.ensure_buckets(stream, &report);
        if greets || has_new_buckets || self.aggregators.revision != revision {
            self.assign_holds();
        }
        let child = self.sessions.by_stream(stream).ok_or(StreamRejected::Unknown)?;
        child.last_report = now;
        child.killed_locally = report.killed_locally;
        self.kills.on_confirmation(now, instance, Role::Aggregator, &report);
        let before = child.books.seq();
        let mut entering = self.keys.entering();
        let entered = child.books.enter_into(now, &report, &mut entering);
        let entered = Entered { entries: entering.entries, ..entered };
        self.note_late(&entered);
        self.introduce_keys();
        self.aggregators.enter(&place, &report, &entered);
        self.liveness.on_report(now, &place);
        self.record_evidence(&report, before, entered.span);
        if report.leaving {
            self.dismiss(&place);
        }
        Ok(!self.is_saved() || self.aggregators.revision != revision || is_new_drill)
    }

    fn on_close(&mut self, now: MonoTime, stream: StreamId) {
        self.sessions.close(now, stream).into_iter().for_each(|gone| self.kills.on_close(gone));
    }

    fn message(&mut self, now: MonoTime, stream: StreamId) -> Option<Message> {
        // A decision is saved before it is sent, so that no restart can take it back.
        if !self.is_in_effect() {
            return None;
        }
        let head = Head {
            epoch: Some(self.durable.epoch),
            policy_hash: Some(self.policies.in_force.hash().as_u64()),
            ..Head::of(self.kills.kills())
        };
        let child = self.sessions.by_stream(stream)?;
        let covered = child.books.seq();
        let echo = Echo { covered, confirmed: covered };
        let place = (child.identity.zone.clone(), child.identity.name.clone());
        let board = self.aggregators.board_mut(&place)?;
        let mut message = child.next_message(now, head, board, true, echo, self.kills.kills())?;
        message.head.children = self.aggregators.clients(&place);
        message.head.upstream_age = Some(Duration::ZERO);
        Some(message)
    }

    fn is_superseded(&self, stream: StreamId) -> bool {
        self.sessions.is_superseded(stream)
    }
}

impl Brain {
    /// Opens a session for the aggregator that greets.
    fn greet(&mut self, now: MonoTime, stream: StreamId, report: &Report) -> Result<(), StreamRejected> {
        let identity = report.identity.clone().ok_or(StreamRejected::Greeting)?;
        let (place, instance) = ((identity.zone.clone(), identity.name.clone()), identity.instance);
        let child = self.sessions.open(now, stream, identity)?;
        self.policies.in_force.exact_buckets().for_each(|(bucket, _)| child.subscribe(bucket));
        if let Some(replaced) = self.aggregators.greet(now, place.clone(), instance, report.holds.clone()) {
            self.sessions.remove(replaced);
            self.buckets.iter_mut().for_each(|bucket| bucket.on_replaced(&place));
        }
        let returned = self.durable.expired.remove(&place);
        self.pending_saves.note_wanted(returned);
        let is_new = self.durable.children.insert(place);
        self.pending_saves.note_change(is_new);
        Ok(())
    }

    /// Makes the buckets of a report known, and sends their directives from now on. Returns true if one of
    /// them is new.
    fn ensure_buckets(&mut self, stream: StreamId, report: &Report) -> bool {
        let before = self.buckets.as_slice().len();
        let of_keys = report.definitions.values().map(|definition| &definition.key.bucket);
        for bucket in report.subscriptions.iter().chain(of_keys) {
            if self.ensure_bucket(bucket)
                && let Some(child) = self.sessions.by_stream(stream)
            {
                child.subscribe(bucket);
            }
        }
        self.buckets.as_slice().len() > before
    }
}
