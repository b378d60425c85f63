//! Real processes of Plimsoll for tests and measurements: processes, fleets of them, and the turns of tests that share a
//! machine.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a failure ends the test

pub mod etcd;
pub mod fleet;
pub mod members;
pub mod mixed_fleet;
pub mod one_limiter;
pub mod process;
pub mod proxy;
pub mod quota_crashes;
pub mod quota_sidecars;
mod skipped;
pub mod turns;

pub use skipped::{is_installed, skipped};
