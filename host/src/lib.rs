//! The machine that a process of Plimsoll runs on: files that are read without waiting for a writer, files
//! that are replaced as a whole or followed while they change, private directories, the limit of descriptors, its name, and threads that stop where
//! they panic.
#![forbid(unsafe_code)]

pub mod atomic_file;
pub mod descriptors;
mod hostname;
pub mod panics;
pub mod private_directory;
pub mod regular_file;
#[cfg(feature = "watch")]
pub mod watch;

pub use hostname::hostname;
