//! One operation on one bucket: its answer and its new state.

use plimsoll_core::quota::{Balance, Gcra, QuotaRate};

use crate::operation::{Answer, Operation};
use crate::store::State;

#[derive(Debug)]
pub(super) struct Applied {
    pub(super) answer: Answer,
    /// The new state; `None` if it did not change.
    pub(super) state: Option<State>,
    /// The time that the caller gave, or else the server's.
    pub(super) at_ms: u64,
    pub(super) is_refused: bool,
}

/// Returns the balance of a bucket. A bucket without a state is full, and starts at `at_ms`.
pub(super) fn balance(state: Option<State>, rate: QuotaRate, at_ms: u64) -> Balance {
    match state {
        Some(State::Tokens(balance)) => balance,
        _ => Balance::full(rate, at_ms),
    }
}

/// Applies an operation on one bucket. `None` for [`Operation::Take`], which has several.
pub(super) fn apply(
    operation: &Operation<'_>,
    state: Option<State>,
    now_ms: u64,
) -> Option<Applied> {
    let mut at_ms = now_ms;
    let (answer, new, is_refused, is_change) = match *operation {
        Operation::Reduce {
            bucket,
            at_ms: at,
            take,
            refill,
        } => {
            at_ms = at.unwrap_or(now_ms);
            let mut new = balance(state, bucket.rate, at_ms);
            let before = new.reduce(bucket.rate, at_ms, take, refill);
            (
                Answer::Tokens(before),
                State::Tokens(new),
                before < take,
                take > 0,
            )
        }
        Operation::Sessionize {
            bucket,
            at_ms: at,
            take,
        } => {
            at_ms = at.unwrap_or(now_ms);
            let mut new = balance(state, bucket.rate, at_ms);
            let session = new.sessionize(bucket.rate, at_ms, take);
            (
                Answer::Session(session),
                State::Tokens(new),
                session.tokens_before < take,
                take > 0,
            )
        }
        Operation::Give { bucket, tokens } => {
            let mut new = balance(state, bucket.rate, at_ms).refilled(bucket.rate, at_ms);
            new.give_back(bucket.rate, tokens);
            (
                Answer::Tokens(new.tokens),
                State::Tokens(new),
                false,
                tokens > 0 && state.is_some(),
            )
        }
        Operation::Throttle { rate, quantity, .. } => {
            let old = match state {
                Some(State::Throttle(gcra)) => gcra,
                _ => Gcra::default(),
            };
            let mut new = old;
            let throttled = new.throttle(rate, at_ms.saturating_mul(1_000_000), quantity);
            (
                Answer::Throttled(throttled),
                State::Throttle(new),
                throttled.limited,
                new != old,
            )
        }
        Operation::Take(_) => return None,
    };
    let state = (is_change && state != Some(new)).then_some(new);
    Some(Applied {
        answer,
        state,
        at_ms,
        is_refused,
    })
}
