//! Documents in etcd, compressed: each change of one stays in the history of etcd until that is compacted. A value there
//! is bounded, so a larger document is a list of chunks, which are named by their checksum and written before the list.

use std::collections::BTreeSet;
use std::io;

use plimsoll_etcd::{Client, Operation, Transaction};
use xxhash_rust::xxh3::xxh3_128;

use super::StoreError;

/// Maximum size of a value in bytes. etcd takes requests of 1.5 MiB unless it is configured otherwise.
const VALUE_BYTES_MAX: usize = 512 << 10;
/// Maximum number of chunks: 30 MiB. A transaction has 128 operations at most, and some delete the chunks before.
const CHUNKS_MAX: usize = 60;
/// The first line of a list of chunks.
const CHUNKED: &str = "plimsoll-chunks 1\n";
const CHUNKS: &str = "chunks/";
/// The beginning of a compressed document, before its size and its LZ4 block.
const COMPRESSED: &[u8] = b"plimsoll-lz4 1\n";
/// Smaller documents stay readable by eye.
const COMPRESSED_BYTES_MIN: usize = 1 << 10;

/// A document as it is written.
pub(super) struct Written {
    /// The value of the document itself.
    pub(super) value: Vec<u8>,
    /// The keys of its chunks.
    pub(super) chunks: BTreeSet<String>,
}

/// Why a document cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] plimsoll_etcd::Error),
    /// A part of it is missing or damaged.
    #[error("its chunk {0} is missing or damaged")]
    Chunk(String),
    /// The list of its parts is damaged.
    #[error("its list of chunks is damaged")]
    List,
    /// Its compressed form is damaged.
    #[error("its compressed form is damaged")]
    Compressed,
    /// Its content is damaged.
    #[error("{0}")]
    Content(String),
}

/// Writes the chunks of a document that `before` does not have, and returns the value that makes it current. A document
/// that fits into a value has no chunks.
///
/// # Errors
/// When the store does not take a chunk. The document before stays whole.
pub(super) async fn write(
    client: &Client,
    bytes: Vec<u8>,
    before: &BTreeSet<String>,
) -> Result<Written, StoreError> {
    if bytes.len() > CHUNKS_MAX * VALUE_BYTES_MAX {
        let reason = format!("{} bytes are more than a document may have", bytes.len());
        return Err(StoreError::Encode(io::Error::other(reason)));
    }
    let bytes = compressed(bytes);
    if bytes.len() <= VALUE_BYTES_MAX {
        let chunks = BTreeSet::new();
        return Ok(Written {
            value: bytes,
            chunks,
        });
    }
    let (mut value, mut chunks) = (CHUNKED.to_owned(), BTreeSet::new());
    for chunk in bytes.chunks(VALUE_BYTES_MAX) {
        let key = format!("{CHUNKS}{:032x}", xxh3_128(chunk));
        value.push_str(&key);
        value.push('\n');
        if !before.contains(&key) {
            let put = Operation::put(key.clone(), chunk.to_vec(), None);
            client.transact(Transaction::default().then(put)).await?;
        }
        chunks.insert(key);
    }
    Ok(Written {
        value: value.into_bytes(),
        chunks,
    })
}

/// Returns the operations that delete the chunks of a document before, which the one after does not have.
pub(super) fn deletions(before: &BTreeSet<String>, after: &BTreeSet<String>) -> Vec<Operation> {
    before
        .difference(after)
        .map(|key| Operation::delete(key.clone()))
        .collect()
}

/// Reads the chunks of a document with this value, and returns all of it and the keys of its chunks.
///
/// # Errors
/// When the store does not answer, or a chunk is damaged.
pub(super) async fn read(
    client: &Client,
    value: &[u8],
) -> Result<(Vec<u8>, BTreeSet<String>), Unread> {
    let Some(list) = value.strip_prefix(CHUNKED.as_bytes()) else {
        return Ok((expanded(value.to_vec())?, BTreeSet::new()));
    };
    let list = std::str::from_utf8(list).map_err(|_| Unread::List)?;
    let (mut bytes, mut chunks) = (Vec::new(), BTreeSet::new());
    for key in list.lines() {
        if !key.starts_with(CHUNKS) || chunks.len() >= CHUNKS_MAX {
            return Err(Unread::List);
        }
        let damaged = || Unread::Chunk(key.chars().take(64).collect());
        let chunk = client.get(key).await?.ok_or_else(damaged)?.value;
        if key != format!("{CHUNKS}{:032x}", xxh3_128(&chunk)) {
            return Err(damaged());
        }
        bytes.extend_from_slice(&chunk);
        chunks.insert(key.to_owned());
    }
    Ok((expanded(bytes)?, chunks))
}

fn compressed(bytes: Vec<u8>) -> Vec<u8> {
    if bytes.len() < COMPRESSED_BYTES_MIN {
        return bytes;
    }
    let block = lz4_flex::compress_prepend_size(&bytes);
    // Not for bytes that do not get smaller, so that the bound of a document holds for both.
    if COMPRESSED.len() + block.len() < bytes.len() {
        [COMPRESSED, &block].concat()
    } else {
        bytes
    }
}

fn expanded(bytes: Vec<u8>) -> Result<Vec<u8>, Unread> {
    let Some(block) = bytes.strip_prefix(COMPRESSED) else {
        return Ok(bytes);
    };
    // The size is read before memory is allocated for it.
    let size = block.first_chunk().map(|size| u32::from_le_bytes(*size));
    if size.is_none_or(|size| size as usize > CHUNKS_MAX * VALUE_BYTES_MAX) {
        return Err(Unread::Compressed);
    }
    lz4_flex::decompress_size_prepended(block).map_err(|_| Unread::Compressed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_documents_are_read_back() {
        for bytes in [
            Vec::new(),
            vec![7; 100],
            vec![7; 1 << 20],
            b"plimsoll".repeat(999),
        ] {
            assert_eq!(expanded(compressed(bytes.clone())).unwrap(), bytes);
        }
        assert!(compressed(vec![7; 1 << 20]).len() < 5_000);
        for damage in [&b""[..], b"\x01", b"\xff\xff\xff\xff1", b"\x09\0\0\0\xff"] {
            assert!(matches!(
                expanded([COMPRESSED, damage].concat()),
                Err(Unread::Compressed)
            ));
        }
    }
}
