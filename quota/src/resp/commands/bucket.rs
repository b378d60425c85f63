//! The commands on token buckets: those of other servers, whose parameters are arguments, and those of leases.

use plimsoll_core::quota::{QuotaRate, Refill, TOKENS_MAX};
use smallvec::SmallVec;

use super::{Asked, Fault, Least, Unit, Verb, key, number};
use crate::operation::{BucketName, Demand, KEYS_PER_TAKE_MAX, Operation};
use crate::resp::counters::Counted;

/// The arguments for one bucket of a take: its key and rate, and the tokens.
const ARGUMENTS_PER_DEMAND: usize = 6;

/// The options of a command, each given once at most.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    refill: Option<u64>,
    take: Option<u64>,
    at: Option<u64>,
    is_strict: bool,
}

/// Reads `key max refilltime` and options, in the unit of the command.
pub(in crate::resp) fn peek_or_reduce<'a>(
    verb: Verb,
    unit: Unit,
    arguments: &[&'a [u8]],
) -> Result<Asked<'a>, Fault> {
    let [name, max, refill_time, options @ ..] = arguments else { return Err(Fault::Syntax) };
    let (name, max) = (key(name)?, number(max)?);
    let every_ms = milliseconds(number(refill_time)?, unit)?;
    let options = Options::read(verb, options)?;
    let at_ms = options.at.map(|at| milliseconds(at, unit)).transpose()?;
    let rate = rate(max, options.refill.unwrap_or(max), every_ms)?;
    let bucket = BucketName { key: name, rate };
    let default_take = if verb == Verb::Get { 0 } else { 1 };
    let take = options.take.unwrap_or(default_take);
    let refill = if options.is_strict { Refill::Strict } else { Refill::OnPhase };
    let (operation, counted) = match verb {
        Verb::Get => (Operation::Reduce { bucket, at_ms, take: 0, refill }, Counted::Get),
        Verb::Reduce => (Operation::Reduce { bucket, at_ms, take, refill }, Counted::Reduce),
        Verb::Sessionize => (Operation::Sessionize { bucket, at_ms, take }, Counted::Sessionize),
    };
    Ok(Asked { operation, counted, least: Least::Tokens(take) })
}

/// Reads `key max refill every_ms least wanted`, once for each bucket.
pub(in crate::resp) fn take<'a>(arguments: &[&'a [u8]]) -> Result<Asked<'a>, Fault> {
    if arguments.is_empty() || !arguments.len().is_multiple_of(ARGUMENTS_PER_DEMAND) {
        return Err(Fault::Count("quota.take"));
    }
    if arguments.len() > KEYS_PER_TAKE_MAX * ARGUMENTS_PER_DEMAND {
        return Err(Fault::ManyKeys);
    }
    let mut demands: SmallVec<[Demand<'a>; 1]> = SmallVec::new();
    for demand in arguments.chunks_exact(ARGUMENTS_PER_DEMAND) {
        let [name, max, refill, every_ms, least, wanted] = demand else { return Err(Fault::Syntax) };
        let bucket = bucket(name, max, refill, every_ms)?;
        // Each would be decided as if the other were not there.
        if demands.iter().any(|earlier| earlier.bucket == bucket) {
            return Err(Fault::SameBucket);
        }
        let least = number(least)?;
        demands.push(Demand { bucket, least, wanted: number(wanted)?.max(least) });
    }
    Ok(Asked { operation: Operation::Take(demands), counted: Counted::Take, least: Least::Said })
}

/// Reads `key max refill every_ms tokens`.
pub(in crate::resp) fn give<'a>(arguments: &[&'a [u8]]) -> Result<Asked<'a>, Fault> {
    let [name, max, refill, every_ms, tokens] = arguments else { return Err(Fault::Syntax) };
    let operation = Operation::Give { bucket: bucket(name, max, refill, every_ms)?, tokens: number(tokens)? };
    Ok(Asked { operation, counted: Counted::Give, least: Least::Said })
}

impl Options {
    fn read(verb: Verb, mut arguments: &[&[u8]]) -> Result<Self, Fault> {
        let mut options = Self::default();
        while let [name, rest @ ..] = arguments {
            arguments = rest;
            let is = |option: &str| name.eq_ignore_ascii_case(option.as_bytes());
            if is("STRICT") && verb != Verb::Get {
                if std::mem::replace(&mut options.is_strict, true) {
                    return Err(Fault::Syntax);
                }
                continue;
            }
            let option = if is("TAKE") && verb != Verb::Get {
                &mut options.take
            } else if is("REFILL") {
                &mut options.refill
            } else if is("AT") {
                &mut options.at
            } else {
                return Err(Fault::Syntax);
            };
            let [value, rest @ ..] = arguments else { return Err(Fault::Syntax) };
            arguments = rest;
            if option.replace(number(value)?).is_some() {
                return Err(Fault::Syntax);
            }
        }
        Ok(options)
    }
}

fn bucket<'a>(name: &'a [u8], max: &[u8], refill: &[u8], every_ms: &[u8]) -> Result<BucketName<'a>, Fault> {
    let rate = rate(number(max)?, number(refill)?, number(every_ms)?)?;
    Ok(BucketName { key: key(name)?, rate })
}

fn rate(max: u64, refill: u64, every_ms: u64) -> Result<QuotaRate, Fault> {
    QuotaRate::new(max, refill, every_ms).map_err(|_| Fault::Number)
}

fn milliseconds(time: u64, unit: Unit) -> Result<u64, Fault> {
    let milliseconds = match unit {
        Unit::Seconds => time.checked_mul(1_000),
        Unit::Milliseconds => Some(time),
    };
    milliseconds.filter(|milliseconds| *milliseconds <= TOKENS_MAX).ok_or(Fault::Number)
}
