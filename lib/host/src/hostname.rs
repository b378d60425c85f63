//! The host name, which distinguishes processes for operators.

use std::env;
use std::fs;

/// Returns the host name from the environment, as containers set it, or else from the kernel.
#[must_use]
pub fn hostname() -> Option<String> {
    let name = env::var("HOSTNAME")
        .or_else(|_| fs::read_to_string("/proc/sys/kernel/hostname"))
        .ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}
