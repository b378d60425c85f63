//! Splits the memory of a server between its parts.

use crate::store::Sizes;

/// Bytes of one shard, within the limits of the number of shards.
const SHARD_BYTES: u64 = 1 << 20;
const SHARDS_MIN: u64 = 16;
const SHARDS_MAX: u64 = 1_024;
const MEMTABLE_MIN: u64 = 1 << 20;
const MEMTABLE_MAX: u64 = 64 << 20;

/// Minimum growth of the log in bytes before buckets are settled.
const LOG_MIN: u64 = 512 << 10;
const LOG_MAX: u64 = 4 << 20;

/// Returns the growth of the log in bytes before buckets are settled. The log holds about twice as
/// many. Its buckets, which cannot be evicted, take less than half of the shards.
pub(super) fn log(cache_bytes: u64) -> u64 {
    (cache_bytes / 128).clamp(LOG_MIN, LOG_MAX)
}

/// Returns the number of shards and the bytes of each: half of the memory.
pub(super) fn shards(cache_bytes: u64) -> (usize, usize) {
    let bytes = cache_bytes / 2;
    let wanted = (bytes / SHARD_BYTES).clamp(SHARDS_MIN, SHARDS_MAX);
    // Largest power of two up to it.
    let count = 1 << wanted.ilog2();
    let per_shard = usize::try_from(bytes / count).unwrap_or(usize::MAX);
    (usize::try_from(count).unwrap_or(1), per_shard)
}

/// Returns the memory of the database: a quarter for blocks of tables, and about as much for
/// memtables, or more below 64 MiB. Up to five memtables of either keyspace exist while the disk is
/// behind. Changes leave the log before its memtable is full.
pub(super) fn database(cache_bytes: u64) -> Sizes {
    Sizes {
        blocks: cache_bytes / 4,
        memtable: (cache_bytes / 32).clamp(MEMTABLE_MIN, MEMTABLE_MAX),
        log: 4 * log(cache_bytes),
    }
}
