//! The integer token bucket: what it holds, and how it is refilled on phase.

use super::rate::{QuotaRate, TOKENS_MAX};

/// The state of one token bucket, in the time of its callers: milliseconds since an origin of theirs.
///
/// A bucket begins full. It is refilled at whole multiples of the interval since it began, also while it is full, so
/// the phase does not move. Only a strict take that empties it begins a new phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balance {
    /// The tokens, at most `max` of the rate.
    pub tokens: u64,
    /// The time of the last refill that was counted.
    pub refilled_at_ms: u64,
    /// The time when the current session began.
    pub session_start_ms: u64,
}

/// The effect of a take on the phase of a bucket that it empties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refill {
    /// The phase stays.
    OnPhase,
    /// The next refill is one whole interval after the take, or after the last refill if that is
    /// later.
    Strict,
}

/// The reply to a take for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The tokens before the take.
    pub tokens_before: u64,
    /// The start of the session in milliseconds.
    pub start_ms: u64,
}

impl Balance {
    /// Makes a full bucket that begins at `at_ms`.
    pub const fn full(rate: QuotaRate, at_ms: u64) -> Self {
        Self {
            tokens: rate.max(),
            refilled_at_ms: at_ms,
            session_start_ms: at_ms,
        }
    }

    /// Returns the bucket after the refills up to `at_ms`. A time before the last refill adds nothing.
    pub const fn refilled(self, rate: QuotaRate, at_ms: u64) -> Self {
        let refills = at_ms.saturating_sub(self.refilled_at_ms) / rate.every_ms();
        let tokens = self
            .tokens
            .saturating_add(refills.saturating_mul(rate.refill()));
        let tokens = if tokens > rate.max() {
            rate.max()
        } else {
            tokens
        };
        Self {
            tokens,
            refilled_at_ms: self.refilled_at_ms + refills * rate.every_ms(),
            ..self
        }
    }

    /// Takes up to `take` tokens, and returns the number before the take: the caller is admitted if that is at least
    /// `take`. A bucket with fewer is emptied. A take of 0 changes nothing.
    pub fn reduce(&mut self, rate: QuotaRate, at_ms: u64, take: u64, refill: Refill) -> u64 {
        let mut new = self.refilled(rate, at_ms);
        let before = new.tokens;
        if take > 0 {
            new.tokens = before.saturating_sub(take);
            if new.tokens == 0 && refill == Refill::Strict {
                // A late take must not bring refills back that were counted.
                new.refilled_at_ms = new.refilled_at_ms.max(at_ms);
            }
            *self = new;
        }
        before
    }

    /// Takes strictly, and begins a new session if there were enough tokens.
    pub fn sessionize(&mut self, rate: QuotaRate, at_ms: u64, take: u64) -> Session {
        let tokens_before = self.reduce(rate, at_ms, take, Refill::Strict);
        if take > 0 && tokens_before >= take {
            self.session_start_ms = at_ms;
        }
        Session {
            tokens_before,
            start_ms: self.session_start_ms,
        }
    }

    /// Gives tokens back, up to a full bucket.
    pub const fn give_back(&mut self, rate: QuotaRate, tokens: u64) {
        let sum = self.tokens.saturating_add(tokens);
        self.tokens = if sum > rate.max() { rate.max() } else { sum };
    }

    /// Returns the time of the next refill.
    pub const fn next_refill_ms(self, rate: QuotaRate) -> u64 {
        self.refilled_at_ms.saturating_add(rate.every_ms())
    }

    /// Returns the time when the bucket reaches `tokens` if nothing is taken; `None` for more than
    /// `max`.
    pub const fn holds_at_ms(self, rate: QuotaRate, tokens: u64) -> Option<u64> {
        if tokens > rate.max() {
            return None;
        }
        let missing = tokens.saturating_sub(self.tokens);
        let refills = missing.div_ceil(rate.refill());
        let at = self
            .refilled_at_ms
            .saturating_add(refills.saturating_mul(rate.every_ms()));
        Some(if at > TOKENS_MAX { TOKENS_MAX } else { at })
    }
}
