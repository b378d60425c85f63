//! The cache file: the current directives are saved on disk, so that a restarted process applies
//! them before its first stream. `snapshot` is the content, and `file` reads and writes it.

mod file;
mod snapshot;

pub(crate) use file::CacheFile;
#[cfg(test)]
pub(crate) use snapshot::write;
pub(crate) use snapshot::{BUCKETS_MAX, Owner};
#[cfg(any(test, feature = "internals"))]
pub(crate) use snapshot::{read, with_checksum};
