//! Exact quotas on real processes: the commands, the views of callers and operators, and crashes
//! and faults of the disk.

mod admin;
mod client_library;
mod commands;
mod model;
mod remote;
mod server;
mod shared;
mod storage;
mod surge;

use std::process::{Command, Stdio};

use plimsoll_testing::skipped;

/// Returns true if a program is installed, and otherwise notes that the test is skipped.
pub(crate) fn is_installed(program: &str, test: &str) -> bool {
    let started = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let is_installed = started.is_ok();
    if !is_installed {
        skipped(&format!("{test}: {program} is not installed"));
    }
    is_installed
}
