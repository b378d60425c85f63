//! The directive cache: directives kept in a file, so that a restarted process decides by them before its first stream.

mod cache_writer;
pub(crate) mod directive_cache;
pub(crate) mod file;
