//! `plimsoll check`: validates policy files and the rules of a sidecar before they are used, for
//! people and for scripts.

mod findings;
pub(crate) mod schema;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use plimsoll_controller::policy_file::PolicyFiles;

use crate::output::{self, Format, OutputArgs};
use findings::Findings;

/// Exit code for files that are invalid or cannot be read.
const EXIT_INVALID: u8 = 2;

/// Validate a policy, or the rules of a sidecar, without running them
///
/// Exit code 0: valid; 2: invalid, with the place of every fault.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Policy file: the buckets and their limits. May be left out with --sidecar-rules
    #[arg(env = "PLIMSOLL_POLICY", required_unless_present = "sidecar_rules")]
    policy: Option<PathBuf>,

    /// Tenant file: the shares of each tenant; without it all tenants are of one class
    #[arg(env = "PLIMSOLL_TENANTS")]
    tenants: Option<PathBuf>,

    /// Catalogue of tenants, as the controller takes it
    #[arg(
        long,
        env = "PLIMSOLL_CATALOGUE",
        value_name = "FILE",
        requires = "policy"
    )]
    catalogue: Option<PathBuf>,

    /// Rules file of a sidecar. Beside a policy, buckets that the policy does not name are warned of
    #[arg(long, env = "PLIMSOLL_RULES", value_name = "FILE")]
    sidecar_rules: Option<PathBuf>,

    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let valid = check(args, &mut output::stdout(), &mut output::stderr())?;
    Ok(if valid {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_INVALID)
    })
}

/// Writes text to `out` and faults to `err`, or only a document to `out`. Returns true if all files
/// are valid.
fn check(args: &CheckArgs, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<bool> {
    let policy = args.policy.clone().map(|policy| PolicyFiles {
        policy,
        tenants: args.tenants.clone(),
        catalogue: args.catalogue.clone(),
    });
    let findings = Findings::of(policy, args.sidecar_rules.as_deref());
    match args.output.format {
        Format::Text => findings.write_text(out, err)?,
        format => format.document(out, &findings)?,
    }
    Ok(findings.valid)
}
