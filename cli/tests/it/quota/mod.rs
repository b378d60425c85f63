//! Exact quotas on real processes: the commands, the views of callers and operators, and crashes
//! and faults of the disk.

mod admin;
mod alerts;
mod client_library;
mod clock;
mod commands;
mod crash;
pub(crate) mod crashes;
mod damage;
mod disk;
mod journal;
mod model;
mod process;
mod remote;
mod shared;
mod sidecars;
mod surge;
mod trace;

use std::process::{Command, Stdio};

use crate::processes::skipped;

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
