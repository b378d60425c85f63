//! The machine that a process of Plimsoll runs on: reads that never block, atomic and watched
//! files, private directories, the limit of descriptors, the host name, threads that stop when they
//! panic, and the clock of a state machine.
#![forbid(unsafe_code)]

pub mod atomic_file;
#[cfg(feature = "descriptors")]
pub mod descriptors;
mod hostname;
pub mod panics;
pub mod private_directory;
pub mod regular_file;
mod shared;
#[cfg(feature = "watch")]
pub mod watch;

pub use hostname::hostname;
pub use shared::Shared;
