//! The commands: their names, and the operations that their arguments describe.

use std::ops::RangeInclusive;

use plimsoll_core::quota::{GcraRate, QuotaRate, Refill, TOKENS_MAX};
use smallvec::SmallVec;

use super::counters::Counted;
use super::input::ARGUMENTS_MAX;
use crate::operation::{BucketName, Demand, KEY_BYTES_MAX, KEYS_PER_TAKE_MAX, Operation};

/// Arguments for one bucket of a take: its key and rate, and the tokens.
const ARGUMENTS_PER_DEMAND: usize = 6;

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Number of arguments without the name.
    pub(super) arguments: RangeInclusive<usize>,
}

/// Kind of a command: an operation on buckets down to `Give`, or one that the connection answers
/// itself. The number of `RL.*` commands is their unit of time in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Reduce(u64),
    Get(u64),
    Sessionize(u64),
    Throttle,
    Take,
    Give,
    Ping,
    Echo,
    Info,
    Select,
    Command,
    Client,
    Hello,
    Auth,
    Quit,
    Reset,
}

const ANY: usize = ARGUMENTS_MAX;

/// Every command, the request path first.
pub(super) static ENTRIES: [Entry; 19] = [
    entry("rl.reduce", Kind::Reduce(1_000), 3..=ANY),
    entry("quota.take", Kind::Take, ARGUMENTS_PER_DEMAND..=ANY),
    entry("rl.preduce", Kind::Reduce(1), 3..=ANY),
    entry("cl.throttle", Kind::Throttle, 4..=5),
    entry("rl.get", Kind::Get(1_000), 3..=ANY),
    entry("rl.pget", Kind::Get(1), 3..=ANY),
    entry("rl.sessionize", Kind::Sessionize(1_000), 3..=ANY),
    entry("rl.psessionize", Kind::Sessionize(1), 3..=ANY),
    entry("quota.give", Kind::Give, 5..=5),
    entry("ping", Kind::Ping, 0..=1),
    entry("echo", Kind::Echo, 1..=1),
    entry("info", Kind::Info, 0..=ANY),
    entry("select", Kind::Select, 1..=1),
    entry("command", Kind::Command, 0..=ANY),
    entry("client", Kind::Client, 1..=ANY),
    entry("hello", Kind::Hello, 0..=ANY),
    entry("auth", Kind::Auth, 1..=ANY),
    entry("quit", Kind::Quit, 0..=ANY),
    entry("reset", Kind::Reset, 0..=0),
];

const fn entry(name: &'static str, kind: Kind, arguments: RangeInclusive<usize>) -> Entry {
    Entry {
        name,
        kind,
        arguments,
    }
}

/// Finds a command by its name, in any case.
pub(super) fn find(name: &[u8]) -> Option<&'static Entry> {
    ENTRIES
        .iter()
        .find(|entry| name.eq_ignore_ascii_case(entry.name.as_bytes()))
}

/// Error of a command. The first three texts equal those of other servers with these commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("ERR Value is not an integer or out of range")]
    Number,
    #[error("ERR Syntax error")]
    Syntax,
    #[error("ERR Wrong number of arguments for '{0}' command")]
    Count(&'static str),
    #[error("ERR the key is longer than {KEY_BYTES_MAX} bytes")]
    LongKey,
    #[error("ERR a take names {KEYS_PER_TAKE_MAX} buckets at most")]
    ManyKeys,
    #[error("ERR a take names the same bucket twice; add up its tokens")]
    SameBucket,
    #[error(
        "ERR AT is {by_s} s ahead of the server's clock, and may be {max_s} s: correct the clock of the caller, give AT in \
         seconds, or milliseconds for RL.P commands, or start the server with a longer --at-ahead-max"
    )]
    AtAhead { by_s: u64, max_s: u64 },
}

impl From<Fault> for String {
    fn from(fault: Fault) -> Self {
        fault.to_string()
    }
}

impl Kind {
    pub(super) const fn counted(self) -> Counted {
        match self {
            Self::Reduce(_) => Counted::Reduce,
            Self::Get(_) => Counted::Get,
            Self::Sessionize(_) => Counted::Sessionize,
            Self::Throttle => Counted::Throttle,
            Self::Take => Counted::Take,
            Self::Give => Counted::Give,
            _ => Counted::Other,
        }
    }
}

impl Entry {
    /// Reads the operation of a command; `None` if it needs no bucket.
    pub(super) fn operation<'a>(
        &self,
        arguments: &[&'a [u8]],
    ) -> Result<Option<Operation<'a>>, Fault> {
        if !self.arguments.contains(&arguments.len()) {
            return Err(Fault::Count(self.name));
        }
        Ok(Some(match (self.kind, arguments) {
            (
                Kind::Reduce(unit_ms) | Kind::Get(unit_ms) | Kind::Sessionize(unit_ms),
                [key, max, every, options @ ..],
            ) => self.reduce_or_sessionize(unit_ms, [key, max, every], options)?,
            (Kind::Take, _) => Operation::Take(self.demands(arguments)?),
            (Kind::Throttle, [key, max_burst, count, period, quantity @ ..]) => {
                let rate = GcraRate::new(number(max_burst)?, number(count)?, number(period)?);
                let quantity = quantity
                    .first()
                    .map_or(Ok(1), |quantity| number(quantity))?;
                Operation::Throttle {
                    key: checked(key)?,
                    rate: rate.map_err(|_| Fault::Number)?,
                    quantity,
                }
            }
            (Kind::Give, [key, max, refill, every_ms, tokens]) => Operation::Give {
                bucket: bucket(key, number(max)?, number(refill)?, number(every_ms)?)?,
                tokens: number(tokens)?,
            },
            _ => return Ok(None),
        }))
    }

    /// Reads `key max refilltime` and options, each given at most once. A get is a reduce that takes nothing.
    fn reduce_or_sessionize<'a>(
        &self,
        unit_ms: u64,
        [key, max, every]: [&'a [u8]; 3],
        mut options: &[&[u8]],
    ) -> Result<Operation<'a>, Fault> {
        let is_get = matches!(self.kind, Kind::Get(_));
        let (mut refill, mut take, mut at, mut is_strict) = (None, None, None, false);
        while let [name, rest @ ..] = options {
            options = rest;
            let is = |option: &[u8]| name.eq_ignore_ascii_case(option);
            if is(b"STRICT") && !is_get && !is_strict {
                is_strict = true;
                continue;
            }
            let option = if is(b"TAKE") && !is_get {
                &mut take
            } else if is(b"REFILL") {
                &mut refill
            } else if is(b"AT") {
                &mut at
            } else {
                return Err(Fault::Syntax);
            };
            let [value, rest @ ..] = options else {
                return Err(Fault::Syntax);
            };
            options = rest;
            if option.replace(number(value)?).is_some() {
                return Err(Fault::Syntax);
            }
        }
        // Times have the bound of tokens.
        let milliseconds = |time: u64| {
            time.checked_mul(unit_ms)
                .filter(|milliseconds| *milliseconds <= TOKENS_MAX)
                .ok_or(Fault::Number)
        };
        let max = number(max)?;
        let bucket = bucket(
            key,
            max,
            refill.unwrap_or(max),
            milliseconds(number(every)?)?,
        )?;
        let (at_ms, take) = (
            at.map(milliseconds).transpose()?,
            take.unwrap_or(u64::from(!is_get)),
        );
        Ok(if let Kind::Sessionize(_) = self.kind {
            Operation::Sessionize {
                bucket,
                at_ms,
                take,
            }
        } else {
            let refill = if is_strict {
                Refill::Strict
            } else {
                Refill::OnPhase
            };
            Operation::Reduce {
                bucket,
                at_ms,
                take,
                refill,
            }
        })
    }

    /// Reads `key max refill every_ms least wanted`, once for each bucket.
    fn demands<'a>(&self, arguments: &[&'a [u8]]) -> Result<SmallVec<[Demand<'a>; 1]>, Fault> {
        let (each, []) = arguments.as_chunks::<ARGUMENTS_PER_DEMAND>() else {
            return Err(Fault::Count(self.name));
        };
        if each.len() > KEYS_PER_TAKE_MAX {
            return Err(Fault::ManyKeys);
        }
        let mut demands: SmallVec<[Demand<'a>; 1]> = SmallVec::new();
        for [key, max, refill, every_ms, least, wanted] in each {
            let bucket = bucket(key, number(max)?, number(refill)?, number(every_ms)?)?;
            // Each would be decided as if the other were not there, and both would pass.
            if demands.iter().any(|earlier| earlier.bucket == bucket) {
                return Err(Fault::SameBucket);
            }
            let least = number(least)?;
            demands.push(Demand {
                bucket,
                least,
                wanted: number(wanted)?.max(least),
            });
        }
        Ok(demands)
    }
}

fn bucket(key: &[u8], max: u64, refill: u64, every_ms: u64) -> Result<BucketName<'_>, Fault> {
    let rate = QuotaRate::new(max, refill, every_ms).map_err(|_| Fault::Number)?;
    Ok(BucketName {
        key: checked(key)?,
        rate,
    })
}

fn checked(key: &[u8]) -> Result<&[u8], Fault> {
    let is_short = key.len() <= KEY_BYTES_MAX;
    is_short.then_some(key).ok_or(Fault::LongKey)
}

fn number(argument: &[u8]) -> Result<u64, Fault> {
    super::input::number(argument).ok_or(Fault::Number)
}
