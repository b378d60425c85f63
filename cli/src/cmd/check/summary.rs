//! The contents of a valid policy in figures.

use std::io::{self, Write};

use plimsoll_core::decision::Mode;
use plimsoll_policy::Policy;
use serde::Serialize;

use crate::output::counted;

/// The contents of a valid policy in figures.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    /// The hash of the content: 16 hex digits.
    hash: String,
    /// Entries with an exact bucket name.
    buckets: usize,
    /// Entries with a pattern, each for any number of buckets.
    patterns: usize,
    shadow: usize,
    canary: usize,
    enforce: usize,
    /// Listed tenants, the class `default` included.
    tenants: usize,
    kill_switch: bool,
}

impl Summary {
    pub(super) fn new(policy: &Policy) -> Self {
        let modes: Vec<Mode> = policy.entries().map(|(_, bucket)| bucket.mode()).collect();
        let in_mode = |mode| modes.iter().filter(|m| **m == mode).count();
        Self {
            hash: policy.hash().to_string(),
            buckets: policy.exact_buckets().count(),
            patterns: policy.patterns().count(),
            shadow: in_mode(Mode::Shadow),
            canary: in_mode(Mode::Canary),
            enforce: in_mode(Mode::Enforce),
            tenants: policy.tenants().count(),
            kill_switch: policy.kill_switch(),
        }
    }

    pub(super) fn write_text(&self, warnings: usize, out: &mut dyn Write) -> io::Result<()> {
        let entries =
            format!("{} and {}", counted(self.buckets, "bucket"), counted(self.patterns, "pattern"));
        let (shadow, canary, enforce) = (self.shadow, self.canary, self.enforce);
        writeln!(out, "valid: {entries} ({enforce} enforce, {canary} canary, {shadow} shadow),")?;
        writeln!(out, "       {}, {}", counted(self.tenants, "tenant"), counted(warnings, "warning"))?;
        if self.kill_switch {
            writeln!(out, "       kill_switch is on: nothing is refused")?;
        }
        writeln!(out, "       policy {}", self.hash)
    }
}
