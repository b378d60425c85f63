//! The name of the machine, by which operators tell processes apart.

use std::env;
use std::fs;

/// Returns the name of the machine: that of the environment, as containers have it, or else that of the kernel.
#[must_use]
pub fn hostname() -> Option<String> {
    let name = env::var("HOSTNAME").or_else(|_| fs::read_to_string("/proc/sys/kernel/hostname")).ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}
