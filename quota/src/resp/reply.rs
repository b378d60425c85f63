//! Replies in the protocol version of the client.

use std::fmt::Write;

use bytes::{BufMut, BytesMut};
use plimsoll_core::quota::QuotaTime;

use crate::operation::{Answer, Unavailable};

const SECOND_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Version {
    /// RESP2, the initial version of every connection.
    #[default]
    Two = 2,
    Three = 3,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Simple(&'static str),
    /// Control characters become blanks: some would end its line.
    Error(String),
    Bulk(Vec<u8>),
    Number(u64),
    Array(Vec<Reply>),
    Map(Vec<(&'static str, Reply)>),
    Null,
}

impl Reply {
    pub(super) fn write(&self, version: Version, out: &mut BytesMut) {
        // A buffer accepts everything that is written to it.
        let _ = match (self, version) {
            (Self::Simple(text), _) => write!(out, "+{text}\r\n"),
            (Self::Error(text), _) => {
                write!(
                    out,
                    "-{}\r\n",
                    text.replace(|letter: char| letter.is_ascii_control(), " ")
                )
            }
            (Self::Bulk(bytes), _) => write_bulk(bytes, out),
            (Self::Number(number), _) => write_number(Some(*number), out),
            (Self::Array(replies), _) => {
                let begun = write!(out, "*{}\r\n", replies.len());
                replies.iter().for_each(|reply| reply.write(version, out));
                begun
            }
            (Self::Map(entries), _) => {
                let begun = match version {
                    Version::Two => write!(out, "*{}\r\n", 2 * entries.len()),
                    Version::Three => write!(out, "%{}\r\n", entries.len()),
                };
                for (key, value) in entries {
                    let _ = write_bulk(key.as_bytes(), out);
                    value.write(version, out);
                }
                begun
            }
            (Self::Null, Version::Two) => out.write_str("$-1\r\n"),
            (Self::Null, Version::Three) => out.write_str("_\r\n"),
        };
    }
}

/// Appends an answer of the engine, with times by the wall clock. Both versions of the protocol
/// encode it alike.
pub(super) fn write_answer(
    answer: &Result<Answer, Unavailable>,
    time: QuotaTime,
    out: &mut BytesMut,
) {
    let _ = match answer {
        Ok(Answer::Tokens(tokens)) => write_number(Some(*tokens), out),
        Ok(Answer::Session(session)) => write_numbers(
            [session.tokens_before, time.wall_of(session.start_ms)].map(Some),
            out,
        ),
        Ok(Answer::Throttled(throttled)) => {
            // Rounded up: a caller that waits for them is admitted.
            let seconds = |ns: u64| ns.div_ceil(SECOND_NS);
            let numbers = [
                Some(u64::from(throttled.limited)),
                Some(throttled.limit),
                Some(throttled.remaining),
                throttled.retry_after_ns.map(seconds),
                Some(seconds(throttled.reset_after_ns)),
            ];
            write_numbers(numbers, out)
        }
        Ok(Answer::Taken(taken)) => {
            let begun = write!(out, "*{}\r\n", taken.len());
            taken.iter().fold(begun, |_, taken| {
                let [granted, remaining, refill_in] =
                    [taken.granted, taken.remaining, taken.refill_in_ms].map(Some);
                write_numbers([granted, remaining, refill_in, taken.holds_in_ms], out)
            })
        }
        Err(unavailable @ Unavailable::Store) => write!(out, "-UNAVAILABLE {unavailable}\r\n"),
        Err(unavailable @ Unavailable::Busy) => write!(out, "-BUSY {unavailable}\r\n"),
    };
}

fn write_bulk(bytes: &[u8], out: &mut BytesMut) -> std::fmt::Result {
    write!(out, "${}\r\n", bytes.len())?;
    out.put_slice(bytes);
    out.write_str("\r\n")
}

fn write_numbers<const N: usize>(
    numbers: [Option<u64>; N],
    out: &mut BytesMut,
) -> std::fmt::Result {
    write!(out, "*{N}\r\n")?;
    numbers
        .into_iter()
        .try_for_each(|number| write_number(number, out))
}

/// Appends a number, up to the largest that a reply can hold; -1 for none.
fn write_number(number: Option<u64>, out: &mut BytesMut) -> std::fmt::Result {
    let number = number.map_or(-1, |number| i64::try_from(number).unwrap_or(i64::MAX));
    write!(out, ":{number}\r\n")
}
