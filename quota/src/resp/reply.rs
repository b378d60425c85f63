//! Replies in the protocol version that the client asked for.

use bytes::BytesMut;
use plimsoll_core::quota::{QuotaTime, Throttled};
use redis_protocol::resp2::encode::extend_encode_borrowed;
use redis_protocol::resp2::types::{BorrowedFrame, BytesFrame as Resp2};
use redis_protocol::resp3::types::BytesFrame as Resp3;
use redis_protocol::{resp2, resp3};

use crate::operation::{Answer, Taken, Unavailable};

const SECOND_NS: u64 = 1_000_000_000;

/// The version of the protocol that a client reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Version {
    /// RESP2, with which every connection begins.
    #[default]
    Two,
    /// RESP3, after `HELLO 3`.
    Three,
}

/// A reply that needs no bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Simple(&'static str),
    Error(String),
    Bulk(Vec<u8>),
    Number(i64),
    Array(Vec<Reply>),
    Set(Vec<Reply>),
    /// A map; an array of keys and values in RESP2.
    Map(Vec<(Reply, Reply)>),
    Null,
}

impl Reply {
    pub(super) fn bulk(text: impl Into<Vec<u8>>) -> Self {
        Self::Bulk(text.into())
    }

    /// Makes an error, in which bytes that would end its line are blanks.
    pub(super) fn error(text: impl Into<String>) -> Self {
        let text: String = text.into();
        let is_plain = !text.bytes().any(|byte| byte.is_ascii_control());
        if is_plain {
            return Self::Error(text);
        }
        Self::Error(text.chars().map(|char| if char.is_ascii_control() { ' ' } else { char }).collect())
    }

    /// Appends the reply to what is sent.
    pub(super) fn write(self, version: Version, out: &mut BytesMut) {
        let written = match version {
            Version::Two => resp2::encode::extend_encode(out, &self.into_resp2(), false),
            Version::Three => resp3::encode::complete::extend_encode(out, &self.into_resp3(), false),
        };
        debug_assert!(written.is_ok(), "every reply can be encoded: {written:?}");
    }

    fn into_resp2(self) -> Resp2 {
        let all = |replies: Vec<Self>| replies.into_iter().map(Self::into_resp2).collect();
        match self {
            Self::Simple(text) => Resp2::SimpleString(text.into()),
            Self::Error(text) => Resp2::Error(text.into()),
            Self::Bulk(bytes) => Resp2::BulkString(bytes.into()),
            Self::Number(number) => Resp2::Integer(number),
            Self::Array(replies) | Self::Set(replies) => Resp2::Array(all(replies)),
            Self::Map(entries) => {
                Resp2::Array(all(entries.into_iter().flat_map(|(key, value)| [key, value]).collect()))
            }
            Self::Null => Resp2::Null,
        }
    }

    fn into_resp3(self) -> Resp3 {
        let attributes = None;
        let all = |replies: Vec<Self>| replies.into_iter().map(Self::into_resp3);
        match self {
            Self::Simple(text) => Resp3::SimpleString { data: text.into(), attributes },
            Self::Error(text) => Resp3::SimpleError { data: text.into(), attributes },
            Self::Bulk(bytes) => Resp3::BlobString { data: bytes.into(), attributes },
            Self::Number(data) => Resp3::Number { data, attributes },
            Self::Array(replies) => Resp3::Array { data: all(replies).collect(), attributes },
            Self::Set(replies) => Resp3::Set { data: all(replies).collect(), attributes },
            Self::Map(entries) => {
                let entries = entries.into_iter();
                let data = entries.map(|(key, value)| (key.into_resp3(), value.into_resp3())).collect();
                Resp3::Map { data, attributes }
            }
            Self::Null => Resp3::Null,
        }
    }
}

/// Appends an answer of the engine to what is sent, with times by the wall clock. Both versions of the protocol write it alike.
pub(super) fn write_answer(answer: &Result<Answer, Unavailable>, time: QuotaTime, out: &mut BytesMut) {
    match answer {
        Ok(Answer::Tokens(tokens)) => write_frame(&number(*tokens), out),
        Ok(Answer::Session(session)) => {
            let start_ms = time.wall_of(session.start_ms);
            write_frame(&BorrowedFrame::Array(&[number(session.tokens_before), number(start_ms)]), out);
        }
        Ok(Answer::Throttled(throttled)) => write_frame(&BorrowedFrame::Array(&throttle(throttled)), out),
        Ok(Answer::Taken(taken)) => {
            let each: Vec<[BorrowedFrame<'_>; 4]> = taken.iter().map(fields).collect();
            let each: Vec<BorrowedFrame<'_>> =
                each.iter().map(|fields| BorrowedFrame::Array(fields)).collect();
            write_frame(&BorrowedFrame::Array(&each), out);
        }
        Err(unavailable) => {
            let code = match unavailable {
                Unavailable::Store => "UNAVAILABLE",
                Unavailable::Busy => "BUSY",
            };
            write_frame(&BorrowedFrame::Error(&format!("{code} {unavailable}")), out);
        }
    }
}

fn write_frame(frame: &BorrowedFrame<'_>, out: &mut BytesMut) {
    let written = extend_encode_borrowed(out, frame, false);
    debug_assert!(written.is_ok(), "every answer can be encoded: {written:?}");
}

fn number(number: u64) -> BorrowedFrame<'static> {
    BorrowedFrame::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

fn fields(taken: &Taken) -> [BorrowedFrame<'static>; 4] {
    let holds_in = taken.holds_in_ms.map_or(BorrowedFrame::Integer(-1), number);
    [number(taken.granted), number(taken.remaining), number(taken.refill_in_ms), holds_in]
}

/// Returns the five numbers of a throttle. Seconds are rounded up: a caller that waits for them is admitted.
fn throttle(throttled: &Throttled) -> [BorrowedFrame<'static>; 5] {
    let seconds = |ns: u64| number(ns.div_ceil(SECOND_NS));
    [
        BorrowedFrame::Integer(i64::from(throttled.limited)),
        number(throttled.limit),
        number(throttled.remaining),
        throttled.retry_after_ns.map_or(BorrowedFrame::Integer(-1), seconds),
        seconds(throttled.reset_after_ns),
    ]
}
