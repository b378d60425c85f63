//! The sessions of a limiter: one per aggregator, over all streams to it.

mod assigned_keys;
mod delivery;
mod first_answer;
mod session;

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::directive::Epoch;
use plimsoll_core::names::Key;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::Handover;

use crate::subscription::assignment::EndpointId;

use assigned_keys::AssignedKeys;
pub(super) use first_answer::FirstAnswer;
use session::Keys;
pub(super) use session::{REPORT_INTERVAL_DEFAULT, Session};

/// The session of a limiter that does not have several aggregators.
pub(super) const ONLY: EndpointId = EndpointId(0);

#[derive(Default)]
pub(super) struct Sessions {
    sessions: BTreeMap<EndpointId, Session>,
    /// The decisions acknowledged in sessions that have ended.
    acknowledged_before: u64,
}

impl Sessions {
    pub(super) fn single() -> Self {
        Self {
            sessions: BTreeMap::from([(ONLY, Session::new(Keys::All))]),
            acknowledged_before: 0,
        }
    }

    /// Adds a session for assigned keys. Directives older than `epoch` are stale in it.
    pub(super) fn add(&mut self, id: EndpointId, epoch: Option<Epoch>) {
        let mut session = Session::new(Keys::Assigned(AssignedKeys::default()));
        session.raise_epoch(epoch);
        self.sessions.insert(id, session);
    }

    pub(super) fn remove(&mut self, id: EndpointId) {
        if let Some(session) = self.sessions.remove(&id) {
            self.acknowledged_before += session.delivery.acknowledged;
        }
    }

    /// Treats directives older than `epoch` as stale in every session.
    pub(super) fn raise_epoch(&mut self, epoch: Option<Epoch>) {
        self.sessions
            .values_mut()
            .for_each(|session| session.raise_epoch(epoch));
    }

    pub(super) fn get(&self, id: EndpointId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: EndpointId) -> Option<&mut Session> {
        let session = self.sessions.get_mut(&id);
        debug_assert!(
            session.is_some(),
            "a stream and an owner of buckets have a session"
        );
        session
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged_before
            + self
                .sessions
                .values()
                .map(|session| session.delivery.acknowledged)
                .sum::<u64>()
    }

    pub(super) fn report_interval(&self) -> Duration {
        let intervals = self
            .sessions
            .values()
            .map(|session| session.report_interval);
        intervals.min().unwrap_or(REPORT_INTERVAL_DEFAULT)
    }

    pub(super) fn upstream_age(
        &self,
        now: MonoTime,
        is_used: impl Fn(EndpointId) -> bool,
    ) -> Option<Duration> {
        let used = self.sessions.iter().filter(|(id, _)| is_used(**id));
        used.filter_map(|(_, session)| session.upstream_age(now))
            .max()
    }

    /// Ends the key that had this id: nothing more is reported of it in any session.
    pub(super) fn finish_key(&mut self, key: u32) {
        self.sessions
            .values_mut()
            .for_each(|session| session.finish_key(key));
    }

    pub(super) fn assign_key(&mut self, to: EndpointId, key: u32, name: Key, handover: Handover) {
        if let Some(session) = self.get_mut(to) {
            session.assign_key(key, name, handover);
        }
    }

    /// Moves a key from one session to another, with all that is known of its counts. Without a former
    /// session, or when that does not have the key, it counts from zero.
    pub(super) fn move_key(
        &mut self,
        key: u32,
        name: Key,
        from: Option<EndpointId>,
        to: EndpointId,
    ) {
        let from = from.and_then(|from| self.sessions.get_mut(&from));
        let handover = from.and_then(|session| session.release_key(key));
        self.assign_key(to, key, name, handover.unwrap_or(Handover::REUSED_NAME));
    }
}
