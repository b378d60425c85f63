//! The queues of waiters, one for each key: who asks next, and when. Pure: the caller passes the time, the directive
//! and the decision.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use plimsoll_core::decision::{Refusal, Verdict};
use plimsoll_core::quantity::MonoTime;
use tokio::sync::Notify;

use super::pace::{Next, Outlook, Pace};

pub(super) const WAITERS_MAX: usize = 10_000;
/// Maximum number of queues beyond the number of waiters. Those without waiters are kept for their paces.
pub(super) const PACES_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Queues {
    /// By key.
    pub(super) queues: HashMap<u32, Queue>,
    waiters: usize,
    last: u64,
}

/// The waiters of one key, in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pace: Pace,
    /// By number of their tickets, ascending.
    line: VecDeque<(u64, Arc<Notify>)>,
    /// The last refusal of the first waiter, which is the answer to each waiter that gives up.
    refusal: Option<Refusal>,
}

pub(super) struct Ticket {
    key: u32,
    number: u64,
    /// Notified when this waiter becomes the first.
    pub(super) first: Arc<Notify>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Turn {
    Decided(Verdict),
    /// The waiter is the first, and steps again at this time.
    Look(MonoTime),
    Behind,
}

impl Queues {
    pub(super) const fn waiters(&self) -> usize {
        self.waiters
    }

    /// Adds a waiter; `None` if there are too many.
    pub(super) fn enter(&mut self, key: u32) -> Option<Ticket> {
        if self.waiters >= WAITERS_MAX {
            return None;
        }
        if self.queues.len() >= self.waiters + PACES_MAX {
            self.queues.retain(|_, queue| !queue.line.is_empty());
        }
        self.last += 1;
        self.waiters += 1;
        let ticket = Ticket {
            key,
            number: self.last,
            first: Arc::default(),
        };
        let queue = self.queues.entry(key).or_default();
        queue
            .line
            .push_back((ticket.number, Arc::clone(&ticket.first)));
        Some(ticket)
    }

    /// Lets a waiter ask if it is the first and its time has come. Each call of
    /// `decide` counts a request; a refusal leaves the waiter where it is.
    pub(super) fn step(
        &mut self,
        now: MonoTime,
        ticket: &Ticket,
        cost: u32,
        outlook: impl FnOnce() -> Outlook,
        decide: impl FnOnce() -> Verdict,
    ) -> Turn {
        let Some(queue) = self.queues.get_mut(&ticket.key) else {
            return Turn::Behind;
        };
        if queue
            .line
            .front()
            .is_none_or(|(first, _)| *first != ticket.number)
        {
            return Turn::Behind;
        }
        let outlook = outlook();
        if let Next::Look(then) = queue.pace.next(now, cost, outlook) {
            return Turn::Look(then);
        }
        let verdict = decide();
        queue
            .pace
            .on_asked(now, cost, outlook.ratio, verdict.is_admit());
        match verdict {
            Verdict::Admit => Turn::Decided(verdict),
            Verdict::Refuse(refusal) => {
                queue.refusal = Some(refusal);
                match queue.pace.next(now, cost, outlook) {
                    Next::Look(then) => Turn::Look(then),
                    // The timer was so late that another attempt is due.
                    Next::Ask => Turn::Look(now),
                }
            }
        }
    }

    /// Removes a waiter. Returns the last refusal of its queue's first waiters; `None` if there was none, or if the
    /// waiter has left before.
    pub(super) fn leave(&mut self, ticket: &Ticket) -> Option<Refusal> {
        let queue = self.queues.get_mut(&ticket.key)?;
        // Numbers ascend, so that a storm of cancellations does not search the line from its front.
        let at = queue
            .line
            .binary_search_by_key(&ticket.number, |(number, _)| *number)
            .ok()?;
        queue.line.remove(at);
        self.waiters -= 1;
        if let (0, Some((_, first))) = (at, queue.line.front()) {
            first.notify_one();
        }
        queue.refusal
    }
}
