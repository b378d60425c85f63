//! The state of one key of a quota: a lease, a remembered refusal, an allowance, and the requests
//! that wait for the store. A state machine that takes `now`.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_core::quantity::MonoTime;
use plimsoll_core::quota::{Quota, QuotaRate};
use smallvec::SmallVec;

use super::allowance::Allowance;
use super::lease::{Lease, lease_ends};
use super::{Demand, LeasedTokens, Reply};

/// The requests of one key that wait for the store, at most; further ones follow the policy of the quota.
pub(crate) const WAITING_PER_KEY_MAX: usize = 1_000;
/// Interval at which one request of a refused key asks the store again, so that a reset takes
/// effect.
pub(crate) const REFUSAL_PROBED_EVERY: Duration = Duration::from_secs(5);
pub(crate) const REFUSAL_LASTS_MAX: Duration = Duration::from_secs(24 * 3_600);

pub(crate) trait Waiter {
    fn is_gone(&self) -> bool;
}

/// The tokens that a request needed; or else the store has fewer, and how long until it has enough, if ever.
pub(crate) type Outcome<T> = Result<T, Option<Duration>>;

pub(crate) enum Joined {
    /// A call to make for this request, and for the requests that join it.
    Call(Demand),
    Waits,
    Full,
}

pub(crate) struct Landed<W> {
    pub(crate) settled: SmallVec<[(W, Outcome<LeasedTokens>); 4]>,
    /// The next call, for the requests that still wait.
    pub(crate) again: Option<Demand>,
    /// Unneeded tokens, to give back to the store.
    pub(crate) surplus: LeasedTokens,
    /// The tokens that have ended unused.
    pub(crate) ended: u64,
}

pub(crate) struct Holding<W> {
    pub(crate) lease: Lease,
    /// The tokens that the store had at the last answer, and the time of the refill after it.
    heard: Option<(u64, MonoTime)>,
    refusal: Option<Refusal>,
    pub(crate) allowance: Allowance,
    /// The calls of this key under way.
    calls: u32,
    /// The earliest time of another call while one is under way: an answer may be lost.
    recall_at: MonoTime,
    /// The time without an answer after which another call is made.
    patience: Duration,
    waiting: VecDeque<Waiting<W>>,
}

struct Waiting<W> {
    /// The part of the cost that the lease did not cover.
    need: u64,
    cost: u64,
    waiter: W,
}

/// The smallest cost that was refused, and how long that is remembered.
#[derive(Clone, Copy)]
struct Refusal {
    cost: u64,
    until: MonoTime,
    probe_at: MonoTime,
}

impl<W: Waiter> Holding<W> {
    pub(crate) fn new(patience: Duration) -> Self {
        Self {
            lease: Lease::new(),
            heard: None,
            refusal: None,
            allowance: Allowance::default(),
            calls: 0,
            recall_at: MonoTime::ZERO,
            patience,
            waiting: VecDeque::new(),
        }
    }

    /// Begins a call for the lease before it is used up, if one is due.
    pub(crate) fn ahead(&mut self, quota: &Quota, now: MonoTime) -> Option<Demand> {
        if self.calls > 0 || !self.lease.is_low(quota, now) {
            return None;
        }
        let extra = self.lease.extra(quota, now);
        (extra > 0).then(|| self.call(now, 1, extra))
    }

    /// Begins a call for the lease and for what is owed, without a request that waits for it.
    pub(crate) fn lead(&mut self, quota: &Quota, now: MonoTime) -> Option<Demand> {
        if self.calls > 0 {
            return None;
        }
        let lease = if quota.lease() > 1 {
            self.lease.extra(quota, now).max(1)
        } else {
            0
        };
        let owed = self.allowance.owed(now);
        let wanted = lease.saturating_add(owed);
        (wanted > 0).then(|| self.call(now, least(quota, 0, owed).max(1), wanted))
    }

    /// Adds tokens to the lease. Returns the tokens that it has no room for.
    pub(crate) fn bank(
        &mut self,
        quota: &Quota,
        tokens: LeasedTokens,
        now: MonoTime,
    ) -> LeasedTokens {
        let beyond = self.lease.bank(quota, tokens, now);
        if self
            .refusal
            .is_some_and(|refusal| self.lease.tokens >= refusal.cost)
        {
            self.refusal = None;
        }
        beyond
    }

    /// Returns the time until the end of the remembered refusal of this cost; `None` if there is none. Lets one
    /// request pass in each `REFUSAL_PROBED_EVERY`.
    pub(crate) fn refuses(&mut self, cost: u64, now: MonoTime) -> Option<Duration> {
        let refusal = self.refusal.as_mut()?;
        if now >= refusal.until {
            self.refusal = None;
            return None;
        }
        if cost < refusal.cost {
            return None;
        }
        if now >= refusal.probe_at {
            refusal.probe_at = now + REFUSAL_PROBED_EVERY;
            return None;
        }
        Some(refusal.until.since(now))
    }

    /// Lets a request wait for the store, and begins a call unless one is under way that may still be answered.
    pub(crate) fn join(
        &mut self,
        quota: &Quota,
        (need, cost): (u64, u64),
        waiter: W,
        now: MonoTime,
    ) -> Joined {
        while self
            .waiting
            .front()
            .is_some_and(|first| first.waiter.is_gone())
        {
            self.waiting.pop_front();
        }
        if self.waiting.len() >= WAITING_PER_KEY_MAX {
            return Joined::Full;
        }
        self.waiting.push_back(Waiting { need, cost, waiter });
        if self.calls > 0 && now < self.recall_at {
            return Joined::Waits;
        }
        self.next_call(quota, 0, now)
            .map_or(Joined::Waits, Joined::Call)
    }

    /// Returns the demand of a call for several keys: a lease only if no other call asks for one.
    pub(crate) fn demand(&mut self, quota: &Quota, need: u64, now: MonoTime) -> Demand {
        let extra = if self.calls > 0 {
            0
        } else {
            self.lease.extra(quota, now)
        };
        Demand {
            least: need,
            wanted: need.saturating_add(extra),
        }
    }

    /// Shares out the answer to a call: first to what is owed, then to the requests that wait, then to the lease.
    pub(crate) fn land(
        &mut self,
        quota: &Quota,
        reply: Reply,
        sent: MonoTime,
        now: MonoTime,
    ) -> Landed<W> {
        let mut settled = SmallVec::new();
        self.heard(quota, reply, now);
        let ends = lease_ends(quota, reply.refill_in, sent);
        // What was admitted without the store is paid before anything else is served.
        let mut left = reply.granted;
        left -= self.allowance.repay(left, now);
        let owed = self.allowance.owed(now);
        while let Some(first) = self.waiting.front() {
            let outcome = if first.waiter.is_gone() {
                None
            } else if first.need <= left {
                left -= first.need;
                let count = first.need;
                Some(Ok(LeasedTokens { count, ends }))
            } else if reply.granted == 0 && least(quota, first.need, owed) > reply.remaining {
                let wait = holds_in(quota.rate, reply, least(quota, first.need, owed));
                let (cost, until) = (first.cost, now + wait.unwrap_or(REFUSAL_LASTS_MAX));
                self.remember(cost, until, now);
                Some(Err(wait))
            } else {
                break;
            };
            if let (Some(waiting), Some(outcome)) = (self.waiting.pop_front(), outcome) {
                settled.push((waiting.waiter, outcome));
            }
        }
        if reply.granted == 0 && reply.remaining == 0 && self.lease.is_over(now) {
            // Requests that do not wait learn from it, too.
            let wait = holds_in(quota.rate, reply, 1).unwrap_or(REFUSAL_LASTS_MAX);
            self.remember(1, now + wait, now);
        }
        let ended = self.lease.take_ended(now);
        let surplus = self.bank(quota, LeasedTokens { count: left, ends }, now);
        self.calls = self.calls.saturating_sub(1);
        // Where another instance was faster, the next call asks for less.
        let remaining = if reply.granted > 0 {
            reply.remaining
        } else {
            0
        };
        let again = match self.calls {
            0 => self
                .next_call(quota, remaining, now)
                .or_else(|| self.pay(reply, now)),
            _ => None,
        };
        Landed {
            settled,
            again,
            surplus,
            ended,
        }
    }

    /// Notes the refusal of `need` of `cost` tokens by a call for several keys. Returns the time until there are enough;
    /// `None` if there never are.
    pub(crate) fn refused(
        &mut self,
        quota: &Quota,
        (need, cost): (u64, u64),
        reply: Reply,
        now: MonoTime,
    ) -> Option<Duration> {
        self.allowance.heard(quota, reply, now);
        let wait = holds_in(quota.rate, reply, need);
        self.remember(cost, now + wait.unwrap_or(REFUSAL_LASTS_MAX), now);
        wait
    }

    pub(crate) fn heard(&mut self, quota: &Quota, reply: Reply, now: MonoTime) {
        self.heard = Some((reply.remaining, now + reply.refill_in));
        self.allowance.heard(quota, reply, now);
        let had = reply.granted.saturating_add(reply.remaining);
        if self.refusal.is_some_and(|refusal| had >= refusal.cost) {
            self.refusal = None;
        }
        if reply.remaining < quota.lease() {
            self.lease.pause_ahead(reply.refill_in, now);
        }
    }

    /// Returns the tokens left and the time until the next refill, by the last answer.
    pub(crate) fn left(&self, rate: QuotaRate, now: MonoTime) -> Option<(u64, Duration)> {
        let (tokens, refill_at) = self.heard?;
        let every = Duration::from_millis(rate.every_ms());
        let late = now.since(refill_at).as_nanos();
        let refills = if now < refill_at {
            0
        } else {
            1 + late / every.as_nanos()
        };
        let added = refills.saturating_mul(u128::from(rate.refill()));
        let leased = if self.lease.is_over(now) {
            0
        } else {
            self.lease.tokens
        };
        let tokens = added
            .saturating_add(u128::from(tokens))
            .saturating_add(u128::from(leased));
        let reset = match refills {
            0 => refill_at.since(now),
            _ => every.saturating_sub(Duration::from_nanos(
                u64::try_from(late % every.as_nanos()).unwrap_or(0),
            )),
        };
        Some((
            u64::try_from(tokens).unwrap_or(u64::MAX).min(rate.max()),
            reset,
        ))
    }

    /// Forgets the store's last answer, because it does not answer now.
    pub(crate) fn forget(&mut self) {
        self.heard = None;
    }

    /// Ends a call without an answer. Returns the requests that no other call may answer.
    pub(crate) fn fail(&mut self) -> SmallVec<[W; 4]> {
        self.calls = self.calls.saturating_sub(1);
        if self.calls > 0 {
            return SmallVec::new();
        }
        self.waiting
            .drain(..)
            .map(|waiting| waiting.waiter)
            .collect()
    }

    /// Returns true if nothing would be lost with this state.
    pub(super) fn is_idle(&self, now: MonoTime) -> bool {
        self.calls == 0
            && self.waiting.is_empty()
            && self.lease.is_over(now)
            && self.refusal.is_none_or(|refusal| now >= refusal.until)
            && self.allowance.is_over(now)
    }

    fn remember(&mut self, cost: u64, until: MonoTime, now: MonoTime) {
        let until = until.min(now + REFUSAL_LASTS_MAX);
        let probe_at = now + REFUSAL_PROBED_EVERY;
        self.refusal = Some(match self.refusal {
            // The lesser cost holds its tokens no later than the greater.
            Some(known) if now < known.until && known.cost < cost => Refusal { probe_at, ..known },
            _ => Refusal {
                cost,
                until,
                probe_at,
            },
        });
    }

    /// Makes the call for the requests that wait, of a bucket that had `remaining` tokens a moment
    /// ago. It asks for the tokens that serve them immediately: a store grants only a part of the
    /// tokens beyond the least.
    fn next_call(&mut self, quota: &Quota, remaining: u64, now: MonoTime) -> Option<Demand> {
        // A call beside another that may still be answered asks for no lease, and pays nothing.
        let (mut needs, extra) = match self.calls {
            0 => (self.allowance.owed(now), self.lease.extra(quota, now)),
            _ => (0, 0),
        };
        let mut least = least(quota, self.waiting.front()?.need, needs);
        for waiting in &self.waiting {
            needs = needs.saturating_add(waiting.need);
            if needs <= remaining {
                least = needs;
            }
        }
        Some(self.call(now, least, needs.saturating_add(extra)))
    }

    /// Makes the call that pays with what is left of a bucket that has less than is owed.
    fn pay(&mut self, reply: Reply, now: MonoTime) -> Option<Demand> {
        let count = self.allowance.owed(now).min(reply.remaining);
        (reply.granted == 0 && count > 0).then(|| self.call(now, count, count))
    }

    /// Begins a call. Each further one that is not answered doubles the time to the next.
    fn call(&mut self, now: MonoTime, least: u64, wanted: u64) -> Demand {
        self.recall_at = now + self.patience.saturating_mul(1 << self.calls.min(10));
        self.calls += 1;
        Demand { least, wanted }
    }
}

/// Returns the tokens without which a request is refused while others are owed. A bucket never holds
/// more than its maximum.
fn least(quota: &Quota, need: u64, owed: u64) -> u64 {
    need.saturating_add(owed).min(quota.rate.max()).max(need)
}

/// Returns the time until a bucket holds `need` tokens if nothing is taken; `None` if it never does.
pub(super) fn holds_in(rate: QuotaRate, reply: Reply, need: u64) -> Option<Duration> {
    if need > rate.max() {
        return None;
    }
    let missing = need.saturating_sub(reply.remaining);
    if missing == 0 {
        return Some(Duration::ZERO);
    }
    let further = missing.div_ceil(rate.refill()) - 1;
    let further = Duration::from_millis(further.saturating_mul(rate.every_ms()));
    Some(reply.refill_in.saturating_add(further))
}
