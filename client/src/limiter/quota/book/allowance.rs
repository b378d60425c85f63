//! The allowance of an instance for one key while the store does not answer: its part of the tokens
//! left, which it pays back.

use std::time::Duration;

use plimsoll_core::quantity::MonoTime;
use plimsoll_core::quota::Quota;

use super::Reply;

/// The tokens admitted without the store, and its last answer. A state machine that takes `now`.
///
/// The part of an instance is its share of the tokens that all instances have taken since the
/// refill. The parts of all instances together are about one, and no instance needs to know the
/// others.
#[derive(Clone, Copy, Default)]
pub(crate) struct Allowance {
    /// The tokens admitted and not paid for.
    used: u64,
    /// The end of the interval that `used` counts for. Nothing is owed after it.
    ends: MonoTime,
    /// The tokens left as of the last answer.
    left: u64,
    /// The tokens that the bucket had when its interval began here.
    had: u64,
    /// The tokens that this instance has taken since.
    own: u64,
    /// The end of that interval: the next refill.
    refills_at: MonoTime,
}

impl Allowance {
    /// Notes an answer of the store.
    pub(super) fn heard(&mut self, quota: &Quota, reply: Reply, now: MonoTime) {
        let had = reply.granted.saturating_add(reply.remaining);
        if now >= self.refills_at {
            let is_filled = quota.rate.refill() >= quota.rate.max();
            (self.own, self.had) = (0, if is_filled { quota.rate.max() } else { had });
            self.refills_at = now + reply.refill_in;
        }
        self.own = self.own.saturating_add(reply.granted);
        (self.left, self.had) = (reply.remaining, self.had.max(had));
    }

    /// Admits `need` tokens, and returns the end of this allowance; or else the time until the next.
    pub(crate) fn take(
        &mut self,
        quota: &Quota,
        need: u64,
        now: MonoTime,
    ) -> Result<MonoTime, Duration> {
        let every = Duration::from_millis(quota.rate.every_ms()).max(Duration::from_secs(1));
        if now >= self.ends {
            (self.used, self.ends) = (
                0,
                if now < self.refills_at {
                    self.refills_at
                } else {
                    now + every
                },
            );
        }
        match self
            .used
            .checked_add(need)
            .filter(|used| *used <= self.part(quota, every, now))
        {
            Some(used) => {
                self.used = used;
                Ok(self.ends)
            }
            None => Err(self.ends.since(now)),
        }
    }

    /// Takes an admission back that was made until `ends`.
    pub(crate) fn take_back(&mut self, need: u64, ends: MonoTime) {
        if self.ends == ends {
            self.used = self.used.saturating_sub(need);
        }
    }

    /// Returns the tokens that were admitted and are still to be taken from the store.
    pub(super) fn owed(&self, now: MonoTime) -> u64 {
        if self.is_over(now) { 0 } else { self.used }
    }

    /// Pays with up to `count` tokens, and returns how many.
    pub(super) fn repay(&mut self, count: u64, now: MonoTime) -> u64 {
        let paid = self.owed(now).min(count);
        self.used -= paid;
        paid
    }

    /// Returns true if nothing would be lost with this state, but for the part.
    pub(super) fn is_over(&self, now: MonoTime) -> bool {
        now >= self.ends
    }

    /// Returns the tokens that this instance may pass until the next refill, or in `every` after it.
    fn part(&self, quota: &Quota, every: Duration, now: MonoTime) -> u64 {
        let left = if now < self.refills_at {
            self.left
        } else {
            let refills =
                u64::try_from(every.as_millis()).unwrap_or(u64::MAX) / quota.rate.every_ms();
            quota
                .rate
                .refill()
                .min(quota.rate.max())
                .saturating_mul(refills)
        };
        let taken = self.had.saturating_sub(self.left).max(self.own);
        let part = u128::from(left) * u128::from(self.own) / u128::from(taken.max(1));
        u64::try_from(part).unwrap_or(u64::MAX).max(quota.bounded())
    }
}
