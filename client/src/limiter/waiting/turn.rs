//! The wait of one request: its place in the queue, and the timer around it. A wait that is dropped gives its place
//! up and lets the next one ask.

use std::time::Duration;

use plimsoll_core::decision::Verdict;
use plimsoll_core::quantity::MonoTime;

use super::Waiting;
use super::pace::Outlook;
use super::queues::{Step, Ticket};
use crate::limiter::KeyHandle;
use crate::limiter::handles::decide_n;

/// A place in a queue, which is given up when this is dropped.
struct Turn<'a> {
    key: &'a KeyHandle,
    ticket: Ticket,
    cost: u32,
    /// True once the wait has been counted as one.
    has_waited: bool,
}

/// Waits until a request is admitted, or `deadline`, a time of the queues' clock, has passed.
pub(super) async fn wait(key: KeyHandle, cost: u32, deadline: MonoTime) -> Verdict {
    if cost == 0 {
        return Verdict::Admit;
    }
    let waiting = &key.table.waiting;
    let Some(ticket) = waiting.queues().enter(key.place.key) else {
        waiting.overflow();
        return key.refusal(cost);
    };
    let mut turn = Turn { key: &key, ticket, cost, has_waited: false };
    loop {
        let (now, step) = turn.step();
        let then = match step {
            Step::Decided(verdict) => {
                turn.end(verdict);
                return verdict;
            }
            _ if now >= deadline => {
                let refusal = waiting.queues().leave(&turn.ticket);
                let verdict = refusal.map_or_else(|| key.refusal(cost), Verdict::Refuse);
                turn.end(verdict);
                return verdict;
            }
            Step::Look(then) => Some(then.min(deadline)),
            Step::Behind => None,
        };
        turn.begin_to_wait();
        match then {
            Some(then) => waiting.sleep_until(then).await,
            None => {
                tokio::select! {
                    () = turn.ticket.first.notified() => {}
                    () = waiting.sleep_until(deadline) => {}
                }
            }
        }
    }
}

impl Turn<'_> {
    /// Asks if the time has come. The decision and its consequence for the queue are one step under the lock.
    fn step(&self) -> (MonoTime, Step) {
        let waiting = &self.key.table.waiting;
        let now = waiting.now();
        let outlook = || self.key.outlook(self.cost);
        let decide = || decide_n(&self.key.table, self.key.target(), self.cost);
        (now, waiting.queues().step(now, &self.ticket, self.cost, outlook, decide))
    }

    fn begin_to_wait(&mut self) {
        if !std::mem::replace(&mut self.has_waited, true) {
            self.key.table.waiting.begun();
        }
    }

    /// Counts the end of a wait that has been counted as one.
    fn end(&mut self, verdict: Verdict) {
        if self.has_waited {
            self.key.table.waiting.decided(verdict);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let waiting = &self.key.table.waiting;
        waiting.queues().leave(&self.ticket);
        if self.has_waited {
            waiting.ended();
        }
    }
}

impl KeyHandle {
    /// Returns what a waiter can see of the key without being counted.
    fn outlook(&self, cost: u32) -> Outlook {
        let target = self.target();
        Outlook {
            is_enforced: target.word().is_enforced(),
            ratio: target.word().ratio().as_f64(),
            has_tokens: self.table.has_tokens(target, cost),
            offered: self.table.counters.counts(self.place.key).offered,
        }
    }
}

impl Waiting {
    /// Sleeps until a time of the queues' clock.
    async fn sleep_until(&self, then: MonoTime) {
        match self.origin().checked_add(then.since(MonoTime::ZERO)) {
            Some(then) => tokio::time::sleep_until(then).await,
            None => std::future::pending().await,
        }
    }

    /// Returns the time `span` from now, by the queues' clock.
    pub(super) fn after(&self, span: Duration) -> MonoTime {
        self.now() + span
    }
}
