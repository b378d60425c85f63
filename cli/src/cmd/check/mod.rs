//! `plimsoll check`: validates policy files before a controller runs on them, for people and for scripts.

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use plimsoll_controller::policy_file::{PolicyFiles, ReadError};
use plimsoll_core::decision::Mode;
use plimsoll_policy::{Fault, Policy, Warning};
use serde::Serialize;

use crate::output::{self, Format, OutputArgs, counted, json_line};

/// The exit code for a policy that is invalid or cannot be read.
const EXIT_INVALID: u8 = 2;

/// Validate a policy without running it
///
/// Exit code 0: valid; 2: invalid, with the place of every fault.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Policy file: the buckets and their limits
    #[arg(env = "PLIMSOLL_POLICY")]
    policy: PathBuf,

    /// Tenant file: the shares of each tenant; without it all tenants are of one class
    #[arg(env = "PLIMSOLL_TENANTS")]
    tenants: Option<PathBuf>,

    #[command(flatten)]
    output: OutputArgs,
}

/// The result of a check, in the form that scripts read.
#[derive(Debug, Default, Serialize)]
struct Findings {
    valid: bool,
    /// The reason why a file could not be read at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<Summary>,
    faults: Vec<Fault>,
    warnings: Vec<Warning>,
}

/// The contents of a valid policy in figures.
#[derive(Debug, Serialize)]
struct Summary {
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

/// Checks the files and prints the result.
///
/// # Errors
/// The result cannot be printed.
pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let valid = check(args, &mut output::stdout(), &mut output::stderr())?;
    Ok(if valid { ExitCode::SUCCESS } else { ExitCode::from(EXIT_INVALID) })
}

/// Text goes to `out` and faults to `err`; JSON goes to `out` alone. Returns true if the policy is valid.
fn check(args: &CheckArgs, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<bool> {
    let files = PolicyFiles { policy: args.policy.clone(), tenants: args.tenants.clone() };
    let findings = Findings::new(files.read());
    match args.output.format {
        Format::Text => findings.write_text(out, err)?,
        Format::Json => json_line(out, &findings)?,
    }
    Ok(findings.valid)
}

impl Findings {
    fn new(read: Result<(Policy, Vec<Warning>), ReadError>) -> Self {
        let invalid = Self::default();
        match read {
            Ok((policy, warnings)) => {
                Self { valid: true, summary: Some(Summary::new(&policy)), warnings, ..invalid }
            }
            Err(ReadError::Invalid(error)) => Self { faults: error.faults().to_vec(), ..invalid },
            Err(error @ (ReadError::Io { .. } | ReadError::Silent { .. })) => {
                Self { error: Some(error.to_string()), ..invalid }
            }
        }
    }

    fn write_text(&self, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<()> {
        if let Some(error) = &self.error {
            writeln!(err, "{error}")?;
        }
        for fault in &self.faults {
            writeln!(err, "{fault}\n")?;
        }
        if !self.faults.is_empty() {
            writeln!(err, "invalid: {}", counted(self.faults.len(), "fault"))?;
        }
        for warning in &self.warnings {
            writeln!(out, "warning: {warning}")?;
        }
        if let Some(summary) = &self.summary {
            summary.write_text(self.warnings.len(), out)?;
        }
        Ok(())
    }
}

impl Summary {
    fn new(policy: &Policy) -> Self {
        let modes: Vec<Mode> = policy.entries().map(|(_, bucket)| bucket.mode).collect();
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

    fn write_text(&self, warnings: usize, out: &mut dyn Write) -> io::Result<()> {
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
