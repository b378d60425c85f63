//! Directives on their way out: a small head for each child, and behind it bytes that were encoded once for all of them.
//! Protobuf messages concatenate, so the two together are the message.

use std::sync::Arc;

use bytes::BufMut;
use plimsoll_core::directive::{BucketDirective, Chunk, Message, News};
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};

use crate::directives::{bucket_part, head};
use crate::{KEYS_PER_PART_MAX, MESSAGE_BYTES_MAX, wire};

/// Keys put into one piece of a bucket. One takes at most 221 bytes, with the longest name and every value in its longest
/// form, so that a piece and a head stay below the bound of a message.
const KEYS_PER_CHUNK_MAX: usize = 1_023;
/// What the longest head takes, kill generations of buckets apart: twelve fields of at most 12 bytes, and the parent's id
/// with 18.
const HEAD_BYTES_MAX: usize = 170;
/// What frames the kill generation of a bucket: the number of its field, and a length.
const KILL_FRAME_BYTES: usize = 4;
/// The number of the field `buckets` in the message.
const BUCKETS: u32 = 9;

/// The parts of a message, at least one, each within the bounds of a message, as an iterator over what is left of them:
/// no part takes room before it is sent.
#[derive(Debug)]
pub struct Parts {
    message: Message,
    /// The first chunk that is not in any part yet.
    at: usize,
    done: bool,
}

/// One part: what belongs to this child, and a range of the chunks it shares with others.
#[derive(Debug)]
pub struct Part {
    head: wire::Directives,
    news: Vec<(Arc<News>, usize)>,
}

/// The parts of a message.
#[must_use]
pub fn encode_directives(message: Message) -> Parts {
    Parts { message, at: 0, done: false }
}

impl Parts {
    /// Whether the last part has been taken.
    pub(crate) const fn is_over(&self) -> bool {
        self.done
    }
}

impl Iterator for Parts {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        if self.done {
            return None;
        }
        let mut part = Part { head: head(&self.message.head), news: Vec::new() };
        // Kill generations go first, and once.
        self.message.head.kills.clear();
        let kills: usize = part.head.kills.iter().map(|kill| kill.encoded_len() + KILL_FRAME_BYTES).sum();
        let (mut bytes, mut keys) = (HEAD_BYTES_MAX + kills, 0);
        let chunks = self.message.news().flat_map(|news| {
            let chunks = news.carried(encode_bucket);
            chunks.iter().enumerate().map(move |(at, chunk)| (news, at, chunk))
        });
        for (news, at, chunk) in chunks.skip(self.at) {
            bytes += chunk.bytes.len();
            keys += chunk.keys;
            if bytes > MESSAGE_BYTES_MAX || keys > KEYS_PER_PART_MAX || part.news.len() >= KEYS_PER_PART_MAX {
                part.head.more = true;
                break;
            }
            part.news.push((Arc::clone(news), at));
        }
        self.at += part.news.len();
        self.done = !part.head.more;
        Some(part)
    }
}

impl Part {
    /// How many bytes it takes as a message.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.head.encoded_len() + self.chunks().map(|chunk| chunk.bytes.len()).sum::<usize>()
    }

    /// Writes it as a message.
    pub fn encode(&self, into: &mut impl BufMut) {
        self.head.encode_raw(into);
        self.chunks().for_each(|chunk| into.put_slice(&chunk.bytes));
    }

    fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.news.iter().filter_map(|(news, at)| news.carried(encode_bucket).get(*at))
    }
}

/// What a bucket's directive looks like on the wire, in pieces that fit into a message, each a whole field of it.
fn encode_bucket(bucket: &BucketDirective) -> Box<[Chunk]> {
    let mut chunks = Vec::with_capacity(1 + bucket.keys.len() / KEYS_PER_CHUNK_MAX);
    let (mut whole, mut keys) = (bucket.whole, bucket.keys.as_slice());
    loop {
        let (now, later) = keys.split_at(keys.len().min(KEYS_PER_CHUNK_MAX));
        let piece = bucket_part(bucket, whole, now);
        let length = piece.encoded_len();
        let mut bytes = Vec::with_capacity(length + 8);
        encode_key(BUCKETS, WireType::LengthDelimited, &mut bytes);
        encode_varint(length as u64, &mut bytes);
        piece.encode_raw(&mut bytes);
        chunks.push(Chunk { bytes: bytes.into(), keys: now.len() });
        (whole, keys) = (false, later);
        if keys.is_empty() {
            return chunks.into();
        }
    }
}
