//! One operation on one bucket: its answer and its new state.

use plimsoll_core::quota::{Balance, Gcra, GcraRate, QuotaRate, Refill};

use crate::operation::{Answer, BucketName, Operation};
use crate::store::{Kind, State};

/// An operation on one bucket.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    Reduce(QuotaRate, u64, Refill),
    Sessionize(QuotaRate, u64),
    Throttle(GcraRate, u64),
    Give(QuotaRate, u64),
}

/// What an operation came to.
#[derive(Debug)]
pub(super) struct Applied {
    pub(super) answer: Answer,
    /// The new state, if it changed.
    pub(super) state: Option<State>,
    pub(super) is_refused: bool,
}

/// An operation on one bucket, with its key and its time.
#[derive(Debug)]
pub(super) struct Single<'a> {
    pub(super) key: &'a [u8],
    pub(super) kind: Kind,
    pub(super) act: Act,
    pub(super) at_ms: u64,
}

impl<'a> Single<'a> {
    /// Returns the operation if it is on one bucket; `None` for a take.
    pub(super) fn new(operation: &Operation<'a>, now_ms: u64) -> Option<Self> {
        let single = |bucket: &BucketName<'a>, act, at_ms| {
            Some(Self { key: bucket.key, kind: Kind::Tokens(bucket.rate), act, at_ms })
        };
        match operation {
            Operation::Reduce { bucket, at_ms, take, refill } => {
                single(bucket, Act::Reduce(bucket.rate, *take, *refill), at_ms.unwrap_or(now_ms))
            }
            Operation::Sessionize { bucket, at_ms, take } => {
                single(bucket, Act::Sessionize(bucket.rate, *take), at_ms.unwrap_or(now_ms))
            }
            Operation::Throttle { key, rate, quantity } => {
                Some(Self { key, kind: Kind::Throttle, act: Act::Throttle(*rate, *quantity), at_ms: now_ms })
            }
            Operation::Give { bucket, tokens } => single(bucket, Act::Give(bucket.rate, *tokens), now_ms),
            Operation::Take(_) => None,
        }
    }
}

/// Returns the balance of a bucket; one that is not in the store is full, and begins at `at_ms`.
pub(super) fn balance(state: Option<State>, rate: QuotaRate, at_ms: u64) -> Balance {
    match state {
        Some(State::Tokens(balance)) => balance,
        _ => Balance::full(rate, at_ms),
    }
}

/// Applies an operation to the state of a bucket.
pub(super) fn apply(state: Option<State>, act: Act, at_ms: u64) -> Applied {
    let tokens = |answer, new: Balance, is_refused, is_asked_only: bool| {
        let new = State::Tokens(new);
        Applied { answer, state: (!is_asked_only && state != Some(new)).then_some(new), is_refused }
    };
    match act {
        Act::Reduce(rate, take, refill) => {
            let mut new = balance(state, rate, at_ms);
            let before = new.reduce(rate, at_ms, take, refill);
            tokens(Answer::Tokens(before), new, before < take, take == 0)
        }
        Act::Sessionize(rate, take) => {
            let mut new = balance(state, rate, at_ms);
            let session = new.sessionize(rate, at_ms, take);
            tokens(Answer::Session(session), new, session.tokens_before < take, take == 0)
        }
        Act::Give(rate, given) => {
            let mut new = balance(state, rate, at_ms).refilled(rate, at_ms);
            new.give_back(rate, given);
            tokens(Answer::Tokens(new.tokens), new, false, given == 0 || state.is_none())
        }
        Act::Throttle(rate, quantity) => {
            let mut new = match state {
                Some(State::Throttle(gcra)) => gcra,
                _ => Gcra::default(),
            };
            let old = new;
            let throttled = new.throttle(rate, at_ms.saturating_mul(1_000_000), quantity);
            let state = (new != old).then_some(State::Throttle(new));
            Applied { is_refused: throttled.limited, answer: Answer::Throttled(throttled), state }
        }
    }
}
