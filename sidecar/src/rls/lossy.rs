//! Requests with texts that are not UTF-8. Envoy copies the bytes of a caller's header into a
//! descriptor, and serves a request that is not decided. So such bytes are written as text, and the
//! request is decided.

use std::str::Utf8Chunk;

use prost::{DecodeError, Message};

use super::messages::{Entry, RateLimitDescriptor, RateLimitRequest};

/// `RateLimitRequest` with bytes in place of texts.
#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(bytes = "vec", tag = "1")]
    domain: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<Descriptor>,
    #[prost(uint32, tag = "3")]
    hits_addend: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<BytesEntry>,
    #[prost(message, optional, tag = "3")]
    hits_addend: Option<u64>,
    #[prost(bool, tag = "4")]
    is_negative_hits: bool,
}

#[derive(Clone, PartialEq, Message)]
struct BytesEntry {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// Decodes a message. A byte that is not UTF-8 becomes U+FFFD and its hexadecimal digits, so that
/// different tenants remain different.
///
/// # Errors
/// When the message is not a request.
pub(super) fn decode(message: &[u8]) -> Result<RateLimitRequest, DecodeError> {
    RateLimitRequest::decode(message).or_else(|error| {
        Request::decode(message)
            .map_err(|_| error)
            .map(Request::text)
    })
}

impl Request {
    fn text(self) -> RateLimitRequest {
        RateLimitRequest {
            domain: text(&self.domain),
            descriptors: self.descriptors.into_iter().map(Descriptor::text).collect(),
            hits_addend: self.hits_addend,
        }
    }
}

impl Descriptor {
    fn text(self) -> RateLimitDescriptor {
        let entry = |entry: BytesEntry| Entry {
            key: text(&entry.key),
            value: text(&entry.value),
        };
        RateLimitDescriptor {
            entries: self.entries.into_iter().map(entry).collect(),
            hits_addend: self.hits_addend,
            is_negative_hits: self.is_negative_hits,
        }
    }
}

fn text(bytes: &[u8]) -> String {
    let chunk = |chunk: Utf8Chunk<'_>| {
        let invalid = chunk
            .invalid()
            .iter()
            .map(|byte| format!("\u{fffd}{byte:02X}"));
        std::iter::once(chunk.valid().to_owned())
            .chain(invalid)
            .collect::<String>()
    };
    bytes.utf8_chunks().map(chunk).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(value: &[u8]) -> Request {
        let entries = vec![BytesEntry {
            key: b"tenant".to_vec(),
            value: value.to_vec(),
        }];
        let descriptors = vec![Descriptor {
            entries,
            hits_addend: Some(3),
            is_negative_hits: true,
        }];
        Request {
            domain: b"shop".to_vec(),
            descriptors,
            hits_addend: 5,
        }
    }

    #[test]
    fn invalid_text_keeps_other_fields() {
        for (value, expected) in [
            (&b"acme"[..], "acme"),
            (b"caf\xc3\xa9", "caf\u{e9}"),
            (b"/api/\xff\xfe", "/api/\u{fffd}FF\u{fffd}FE"),
            (b"\xc3", "\u{fffd}C3"),
        ] {
            let decoded = decode(&request(value).encode_to_vec()).unwrap();
            let mut same = request(b"").text();
            expected.clone_into(&mut same.descriptors[0].entries[0].value);
            assert_eq!(decoded, same, "{value:?}");
        }
    }

    #[test]
    fn undecodable_message_is_an_error() {
        for message in [&b"\xff"[..], b"\x0a\x05ab", b"\x08\x01"] {
            assert!(decode(message).is_err(), "{message:?}");
        }
    }
}
