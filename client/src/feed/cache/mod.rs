//! The cache file: the directives in force are saved on disk, so that a restarted process applies them before
//! its first stream. `snapshot` is the content as text, and `file` reads and writes it.

mod file;
mod snapshot;

pub(crate) use file::{CacheFile, Restored};
pub(crate) use snapshot::{Owner, Snapshot, with_checksum};
