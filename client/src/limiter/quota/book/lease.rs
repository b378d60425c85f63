//! The tokens of one key that an instance holds ahead of the requests that use them.

use std::time::Duration;

use plimsoll_core::quantity::MonoTime;
use plimsoll_core::quota::Quota;

use super::LeasedTokens;

/// Duration of a lease if its bucket is refilled more often.
pub(crate) const LEASE_LASTS: Duration = Duration::from_secs(1);
/// A lease that is used up within this time was too small.
const GROWS_WITHIN: Duration = Duration::from_secs(1);
/// A lease that was not used up within this time is too large.
const SHRINKS_AFTER: Duration = Duration::from_secs(10);
/// Maximum pause between two calls ahead of need, after the store had nothing to lease.
const AHEAD_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Tokens that the store has debited and no request has used. At most [`Quota::lease`].
///
/// A lease ends at the next refill of its bucket, when the tokens are lost: after a refill they would be on top of a
/// full bucket. Where refills are more frequent, it lasts `LEASE_LASTS`. Its size begins at one token, doubles when
/// a lease is used up within [`GROWS_WITHIN`], and halves when one lasts longer than [`SHRINKS_AFTER`] or ends unused.
pub(crate) struct Lease {
    pub(crate) tokens: u64,
    ends: MonoTime,
    size: u64,
    called_at: Option<MonoTime>,
    /// The time before which no call ahead of need is made.
    ahead_from: MonoTime,
    /// The tokens that have ended unused and are not counted yet.
    ended: u64,
}

impl Lease {
    pub(super) const fn new() -> Self {
        Self {
            tokens: 0,
            ends: MonoTime::ZERO,
            size: 1,
            called_at: None,
            ahead_from: MonoTime::ZERO,
            ended: 0,
        }
    }

    pub(crate) fn cover(&mut self, cost: u64, now: MonoTime) -> LeasedTokens {
        self.expire(now);
        let count = self.tokens.min(cost);
        self.tokens -= count;
        LeasedTokens {
            count,
            ends: self.ends,
        }
    }

    pub(super) fn is_over(&self, now: MonoTime) -> bool {
        self.tokens == 0 || now >= self.ends
    }

    pub(super) fn bank(
        &mut self,
        quota: &Quota,
        tokens: LeasedTokens,
        now: MonoTime,
    ) -> LeasedTokens {
        self.expire(now);
        if tokens.count == 0 || now >= tokens.ends {
            return tokens;
        }
        let room = if quota.lease() > 1 {
            quota.lease().saturating_sub(self.tokens)
        } else {
            0
        };
        let kept = tokens.count.min(room);
        if kept > 0 {
            self.ends = if self.tokens == 0 {
                tokens.ends
            } else {
                self.ends.min(tokens.ends)
            };
            self.tokens += kept;
        }
        LeasedTokens {
            count: tokens.count - kept,
            ..tokens
        }
    }

    pub(crate) const fn drain(&mut self) -> LeasedTokens {
        LeasedTokens {
            count: std::mem::replace(&mut self.tokens, 0),
            ends: self.ends,
        }
    }

    pub(super) fn take_ended(&mut self, now: MonoTime) -> u64 {
        self.expire(now);
        std::mem::take(&mut self.ended)
    }

    /// Returns true if a call ahead of need is due: a quarter of the lease is left.
    pub(super) fn is_low(&self, quota: &Quota, now: MonoTime) -> bool {
        quota.lease() > 1
            && self.size >= 4
            && self.tokens <= self.size / 4
            && now >= self.ahead_from
    }

    /// Adapts the size for a call made now. Returns the tokens to ask for in addition to the need.
    pub(super) fn extra(&mut self, quota: &Quota, now: MonoTime) -> u64 {
        match self
            .called_at
            .replace(now)
            .map(|called_at| now.since(called_at))
        {
            Some(lasted) if lasted < GROWS_WITHIN => self.size = self.size.saturating_mul(2),
            Some(lasted) if lasted > SHRINKS_AFTER => self.size = (self.size / 2).max(1),
            _ => {}
        }
        self.size = self.size.min(quota.lease());
        (self.size - 1).saturating_sub(self.tokens)
    }

    pub(super) fn pause_ahead(&mut self, refill_in: Duration, now: MonoTime) {
        self.ahead_from = now + refill_in.min(AHEAD_PAUSE_MAX);
    }

    fn expire(&mut self, now: MonoTime) {
        if self.tokens > 0 && now >= self.ends {
            self.ended = self.ended.saturating_add(std::mem::take(&mut self.tokens));
            self.size = (self.size / 2).max(1);
        }
    }
}

/// Returns the end of a lease requested at `sent`.
pub(crate) fn lease_ends(quota: &Quota, refill_in: Duration, sent: MonoTime) -> MonoTime {
    let every = Duration::from_millis(quota.rate.every_ms());
    sent + if every < LEASE_LASTS {
        LEASE_LASTS
    } else {
        refill_in
    }
}
