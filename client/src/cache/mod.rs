//! The cache file: the directives in force are saved on disk, so that a restarted process applies them before
//! its first stream. `snapshot` is the content as text, `file` reads and writes it, `cache_writer` keeps it
//! up to date.

mod cache_writer;
mod file;
mod snapshot;

pub(crate) use cache_writer::{CacheWriter, Source, Version};
pub(crate) use file::{CacheFile, Restored};
pub(crate) use snapshot::{Owner, Snapshot};
