//! The commands: what each is called, and the operation on buckets that its arguments say.

mod bucket;
mod catalog;
mod throttle;

use smallvec::SmallVec;

pub(super) use self::bucket::{give, peek_or_reduce, take};
pub(super) use self::catalog::{ENTRIES, Entry, Kind, Unit, Verb, entry};
pub(super) use self::throttle::throttle;

use super::counters::Counted;
use crate::operation::{Answer, KEY_BYTES_MAX, KEYS_PER_TAKE_MAX, Operation};

/// An operation, and what its answer has to hold to count as granted.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) operation: Operation<'a>,
    pub(super) counted: Counted,
    pub(super) least: Least,
}

/// The tokens without which a command counts as refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Least {
    /// The answer says it itself, or the command never refuses.
    Said,
    /// This many before the take.
    Tokens(u64),
}

/// The reason why arguments are no command. The texts are those of other servers with these commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("Value is not an integer or out of range")]
    Number,
    #[error("Syntax error")]
    Syntax,
    #[error("Wrong number of arguments for '{0}' command")]
    Count(&'static str),
    #[error("the key is longer than {KEY_BYTES_MAX} bytes")]
    LongKey,
    #[error("a take names {KEYS_PER_TAKE_MAX} buckets at most")]
    ManyKeys,
    #[error("a take names the same bucket twice; add up its tokens")]
    SameBucket,
    #[error(
        "AT is {by_s} s ahead of the server's clock, and may be {max_s} s: correct the clock of the caller, give AT in \
         seconds, or milliseconds for RL.P commands, or start the server with a longer --at-ahead-max"
    )]
    AtAhead { by_s: u64, max_s: u64 },
}

impl Least {
    /// Returns true if the answer grants what was asked.
    pub(super) fn is_granted(self, answer: &Answer) -> bool {
        match (self, answer) {
            (Self::Tokens(least), Answer::Tokens(before)) => *before >= least,
            (Self::Tokens(least), Answer::Session(session)) => session.tokens_before >= least,
            (_, Answer::Throttled(throttled)) => !throttled.limited,
            (_, Answer::Taken(taken)) => is_taken(taken),
            _ => true,
        }
    }
}

/// Returns true if a take has granted something, or nothing was demanded.
fn is_taken(taken: &SmallVec<[crate::operation::Taken; 1]>) -> bool {
    taken.iter().any(|taken| taken.granted > 0) || taken.iter().all(|taken| taken.holds_in_ms == Some(0))
}

fn key(argument: &[u8]) -> Result<&[u8], Fault> {
    if argument.len() <= KEY_BYTES_MAX { Ok(argument) } else { Err(Fault::LongKey) }
}

fn number(argument: &[u8]) -> Result<u64, Fault> {
    super::input::number(argument).ok_or(Fault::Number)
}
