//! The cache file: the current directives are saved on disk, so that a restarted process applies
//! them before its first stream. `snapshot` is the content, and `file` reads and writes it.

mod file;
mod snapshot;

pub(crate) use file::CacheFile;
pub(crate) use snapshot::Owner;
#[cfg(test)]
pub(crate) use snapshot::write;
#[cfg(any(test, feature = "internals"))]
pub(crate) use snapshot::{read, with_checksum};
