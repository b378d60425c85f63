//! Outgoing directives: a small head for each child, followed by bytes that are encoded once for all
//! children. Protobuf messages concatenate, so the two together are one message.

use std::sync::Arc;

use bytes::BufMut;
use plimsoll_core::directive::{BucketDirective, BucketUpdate, Chunk, Message};
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};

use crate::convert::{bucket_piece, encode_head};
use crate::{KEYS_PER_PART_MAX, MESSAGE_BYTES_MAX, wire};

/// Maximum number of keys in one piece of a bucket. A key takes at most 223 bytes, with the longest
/// name and every value in its longest form, so that a piece and a head fit into a message.
const KEYS_PER_CHUNK_MAX: usize = 1_023;
/// Maximum size of a head in bytes without the entries of its lists: fourteen fields of at most 12
/// bytes, a truth value with 3, the frames of two packed lists, and two instance ids with 19.
const HEAD_BYTES_MAX: usize = 217;
/// Size in bytes of the mark that further parts follow, which a head is given last.
const MORE_BYTES: usize = 3;
const BUCKETS_TAG: u32 = 9;

/// Iterator over the parts of a message, one or more, each within the bounds of a message. A part is built
/// when it is requested.
#[derive(Debug)]
pub struct Parts {
    message: Message,
    /// Index of the first chunk that is not in any part yet.
    next_chunk: usize,
    done: bool,
}

/// One part: the head for this child, and chunks that other children share.
#[derive(Debug)]
pub struct MessagePart {
    head: wire::Directives,
    /// Buckets, each with the index of one of its chunks.
    chunks: Vec<(Arc<BucketUpdate>, usize)>,
}

/// Splits a message into parts, which are encoded when they are sent.
pub fn encode_directives(message: Message) -> Parts {
    Parts {
        message,
        next_chunk: 0,
        done: false,
    }
}

impl Parts {
    #[cfg(feature = "server")]
    pub(crate) const fn is_over(&self) -> bool {
        self.done
    }
}

impl Iterator for Parts {
    type Item = MessagePart;

    fn next(&mut self) -> Option<MessagePart> {
        if self.done {
            return None;
        }
        let mut part = MessagePart {
            head: encode_head(&self.message.head),
            chunks: Vec::new(),
        };
        // Kill generations and orders, grants, standings and limits and plans of names are in the first part only.
        let head = &mut self.message.head;
        head.kills.buckets.clear();
        head.kills.orders.clear();
        head.grants.clear();
        head.standings.clear();
        head.limits = None;
        head.catalogue.names.clear();
        head.catalogue.keys.clear();
        let head_bytes = part.head.encoded_len();
        let (mut bytes, mut keys) = (head_bytes + MORE_BYTES, 0);
        let chunks = self.message.updates().flat_map(|bucket| {
            let chunks = bucket.encoded(encode_bucket);
            chunks
                .iter()
                .enumerate()
                .map(move |(at, chunk)| (bucket, at, chunk))
        });
        for (bucket, at, chunk) in chunks.skip(self.next_chunk) {
            bytes += chunk.bytes.len();
            keys += chunk.keys;
            if bytes > MESSAGE_BYTES_MAX
                || keys > KEYS_PER_PART_MAX
                || part.chunks.len() >= KEYS_PER_PART_MAX
            {
                part.head.more = true;
                break;
            }
            part.chunks.push((Arc::clone(bucket), at));
        }
        debug_assert!(
            !part.head.more || !part.chunks.is_empty() || head_bytes > HEAD_BYTES_MAX,
            "a chunk fits into no part"
        );
        self.next_chunk += part.chunks.len();
        self.done = !part.head.more;
        Some(part)
    }
}

impl MessagePart {
    /// Returns the length of the encoded message in bytes.
    pub fn encoded_len(&self) -> usize {
        self.head.encoded_len()
            + self
                .encoded_chunks()
                .map(|chunk| chunk.bytes.len())
                .sum::<usize>()
    }

    /// Writes the encoded message.
    pub fn encode(&self, into: &mut impl BufMut) {
        self.head.encode_raw(into);
        self.encoded_chunks()
            .for_each(|chunk| into.put_slice(&chunk.bytes));
    }

    fn encoded_chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.chunks
            .iter()
            .filter_map(|(bucket, at)| bucket.encoded(encode_bucket).get(*at))
    }
}

/// Encodes a bucket's directive as pieces that fit into a message. Each is an entry of the field `buckets`, with its
/// tag. The first has the quotas, and no keys where their overrides may take its room.
fn encode_bucket(bucket: &BucketDirective) -> Box<[Chunk]> {
    let mut chunks = Vec::with_capacity(2 + bucket.keys.len() / KEYS_PER_CHUNK_MAX);
    let (mut snapshot, mut keys) = (bucket.whole, bucket.keys.as_slice());
    let mut quotas = bucket.terms.quotas.iter().flat_map(|quotas| quotas.iter());
    let mut room = match quotas.all(|quota| quota.overrides().is_empty()) {
        true => KEYS_PER_CHUNK_MAX,
        false => 0,
    };
    loop {
        let (now, later) = keys.split_at(keys.len().min(room));
        let mut piece = bucket_piece(bucket, snapshot, now);
        if !chunks.is_empty() {
            piece.quotas = None;
        }
        let length = piece.encoded_len();
        let mut bytes = Vec::with_capacity(length + 8);
        encode_key(BUCKETS_TAG, WireType::LengthDelimited, &mut bytes);
        encode_varint(length as u64, &mut bytes);
        piece.encode_raw(&mut bytes);
        chunks.push(Chunk {
            bytes: bytes.into(),
            keys: now.len(),
        });
        (snapshot, keys, room) = (false, later, KEYS_PER_CHUNK_MAX);
        if keys.is_empty() {
            return chunks.into();
        }
    }
}
