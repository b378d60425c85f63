//! The wait of one request: its place in the queue, and the timer around it. A wait that is dropped gives its place
//! up and lets the next one ask.

use std::sync::atomic::Ordering;
use std::time::Duration;

use plimsoll_core::decision::Verdict;
use plimsoll_core::quantity::MonoTime;

use super::Waiting;
use super::pace::Outlook;
use super::queues::{Ticket, Turn as Next};
use crate::hot::decision::Decided;
use crate::hot::rng::DrawSource;
use crate::hot::sync::lock;
use crate::hot::thread_counters::Outcome;
use crate::limiter::handles::thread_ctx;
use crate::limiter::layered::Step;
use crate::limiter::{KeyHandle, Limiter, Request};

struct Place<'a> {
    waiting: &'a Waiting,
    ticket: Ticket,
    /// True once the request had to wait: one that is admitted immediately is not counted.
    has_waited: bool,
}

/// Waits until a request of a key is admitted by coin and guard, at most for `time`, and then for its quotas.
pub(crate) async fn wait(
    limiter: &Limiter,
    key: &KeyHandle,
    request: &Request<'_>,
    time: Duration,
) -> Verdict {
    let waiting = &limiter.table.waiting;
    let deadline = waiting.now() + time;
    let Some(ticket) = lock(&waiting.queues).enter(key.place.key) else {
        waiting.overflowed.fetch_add(1, Ordering::Relaxed);
        return refusal(key, request.cost);
    };
    let mut place = Place {
        waiting,
        ticket,
        has_waited: false,
    };
    loop {
        let now = waiting.now();
        let mut by_quotas = None;
        // The decision and its consequence for the queue are one step under the lock.
        let decide = || match limiter.begin(request, true) {
            Step::Decided(Decided {
                verdict,
                quota: None,
                ..
            }) => verdict,
            // Its quotas decide, apart from the queue.
            step => {
                by_quotas = Some(step);
                Verdict::Admit
            }
        };
        let look = || outlook(key, request.cost);
        let next = lock(&waiting.queues).step(now, &place.ticket, request.cost, look, decide);
        let then = match next {
            Next::Decided(verdict) => {
                place.end(verdict);
                drop(place);
                return match by_quotas {
                    Some(step) => step.ended().await.verdict,
                    None => verdict,
                };
            }
            _ if now >= deadline => {
                let refused = lock(&waiting.queues).leave(&place.ticket);
                let verdict = refused.map_or_else(|| refusal(key, request.cost), Verdict::Refuse);
                place.end(verdict);
                return verdict;
            }
            Next::Look(then) => Some(then.min(deadline)),
            Next::Behind => None,
        };
        place.has_waited = true;
        match then {
            Some(then) => waiting.sleep_until(then).await,
            None => {
                tokio::select! {
                    () = place.ticket.first.notified() => {}
                    () = waiting.sleep_until(deadline) => {}
                }
            }
        }
    }
}

/// Returns what a waiter can see of the key without being counted.
fn outlook(key: &KeyHandle, cost: u32) -> Outlook {
    let target = key.target();
    Outlook {
        is_enforced: target.word().is_enforced(),
        ratio: target.word().ratio().as_f64(),
        has_tokens: key.table.has_tokens(target, cost),
        offered: key.table.counters.counts(key.place.key).offered,
    }
}

/// Makes the refusal of a waiter that has not asked: it is not counted.
fn refusal(key: &KeyHandle, cost: u32) -> Verdict {
    let (target, table) = (key.target(), &key.table);
    let outcome = if table.has_tokens(target, cost) {
        Outcome::Dropped
    } else {
        Outcome::GuardDropped
    };
    let word = target.word();
    Verdict::Refuse(word.refusal(word.reason(outcome), thread_ctx(table).draws.jitter()))
}

impl Place<'_> {
    fn end(&self, verdict: Verdict) {
        if self.has_waited {
            let admitted = verdict.is_admit();
            let count = if admitted {
                &self.waiting.admitted
            } else {
                &self.waiting.timed_out
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        lock(&self.waiting.queues).leave(&self.ticket);
    }
}

impl Waiting {
    async fn sleep_until(&self, then: MonoTime) {
        match self.origin().checked_add(then.since(MonoTime::ZERO)) {
            Some(then) => tokio::time::sleep_until(then).await,
            None => std::future::pending().await,
        }
    }
}
