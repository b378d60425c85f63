//! `plimsoll check`: says whether a policy is valid before anything runs on it, for people and for scripts.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use plimsoll_controller::policy_file::{PolicyFiles, ReadError};
use plimsoll_core::policy::{Fault, Policy, Warning};
use plimsoll_core::rollout::Mode;
use serde::Serialize;

#[cfg(test)]
mod tests;

/// The exit code for a policy that is not valid or cannot be read.
const EXIT_REFUSED: u8 = 2;

/// Check a policy without running it. Exit code 0: valid; 2: refused, with the place of every fault.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The file that says what is protected
    #[arg(env = "PLIMSOLL_POLICY")]
    policy: PathBuf,

    /// The file that says who gets how much; without it all tenants are of one class
    #[arg(env = "PLIMSOLL_TENANTS")]
    tenants: Option<PathBuf>,

    /// How to say what was found
    #[arg(long, short, value_enum, default_value_t, env = "PLIMSOLL_OUTPUT", value_name = "FORMAT")]
    output: Output,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Output {
    /// For people: faults go to standard error, everything else to standard output
    #[default]
    Text,
    /// For scripts: one JSON object on standard output, whatever was found
    Json,
}

/// What was found, in the form scripts read.
#[derive(Debug, Serialize)]
struct Findings {
    valid: bool,
    /// Why a file could not be read at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<Summary>,
    faults: Vec<Fault>,
    warnings: Vec<Warning>,
}

#[derive(Debug, Serialize)]
struct Summary {
    /// Which content was checked: 16 hex digits.
    hash: String,
    /// Buckets by exact name.
    buckets: usize,
    /// Patterns, each for any number of buckets.
    patterns: usize,
    shadow: usize,
    canary: usize,
    enforce: usize,
    /// Tenants listed, the class `default` among them.
    tenants: usize,
    kill_switch: bool,
}

/// Checks the files and says what was found.
///
/// # Errors
/// When what was found cannot be written.
pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let valid = check(args, &mut io::stdout().lock(), &mut io::stderr().lock())?;
    Ok(if valid { ExitCode::SUCCESS } else { ExitCode::from(EXIT_REFUSED) })
}

fn check(args: &CheckArgs, out: &mut impl Write, err: &mut impl Write) -> anyhow::Result<bool> {
    let files = PolicyFiles { policy: args.policy.clone(), tenants: args.tenants.clone() };
    let findings = Findings::of(files.read());
    match args.output {
        Output::Text => findings.write_text(out, err)?,
        Output::Json => {
            serde_json::to_writer_pretty(&mut *out, &findings)?;
            writeln!(out)?;
        }
    }
    out.flush()?;
    Ok(findings.valid)
}

// === impl Findings ===

impl Findings {
    fn of(read: Result<(Policy, Vec<Warning>), ReadError>) -> Self {
        let refused =
            Self { valid: false, error: None, summary: None, faults: Vec::new(), warnings: Vec::new() };
        match read {
            Ok((policy, warnings)) => {
                Self { valid: true, summary: Some(Summary::of(&policy)), warnings, ..refused }
            }
            Err(ReadError::Invalid(error)) => Self { faults: error.faults().to_vec(), ..refused },
            Err(error @ ReadError::Io { .. }) => Self { error: Some(error.to_string()), ..refused },
        }
    }

    fn write_text(&self, out: &mut impl Write, err: &mut impl Write) -> io::Result<()> {
        if let Some(error) = &self.error {
            writeln!(err, "{error}")?;
        }
        for fault in &self.faults {
            writeln!(err, "{fault}\n")?;
        }
        if !self.faults.is_empty() {
            writeln!(err, "refused: {}", counted(self.faults.len(), "fault"))?;
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

// === impl Summary ===

impl Summary {
    fn of(policy: &Policy) -> Self {
        let modes: Vec<Mode> = policy
            .exact_buckets()
            .map(|(_, bucket)| bucket.mode())
            .chain(policy.patterns().map(|(_, bucket)| bucket.mode()))
            .collect();
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

    fn write_text(&self, warnings: usize, out: &mut impl Write) -> io::Result<()> {
        let protected =
            format!("{} and {}", counted(self.buckets, "bucket"), counted(self.patterns, "pattern"));
        let (shadow, canary, enforce) = (self.shadow, self.canary, self.enforce);
        writeln!(out, "valid: {protected} ({enforce} enforce, {canary} canary, {shadow} shadow),")?;
        writeln!(out, "       {}, {}", counted(self.tenants, "tenant"), counted(warnings, "warning"))?;
        if self.kill_switch {
            writeln!(out, "       kill_switch is on: nothing is refused")?;
        }
        writeln!(out, "       policy {}", self.hash)
    }
}

fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
