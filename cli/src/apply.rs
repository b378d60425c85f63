//! `plimsoll diff` and `plimsoll apply`: the policy that a controller holds back because it changes very much.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use plimsoll_controller::rollout_routes::{Ack, HeldStatus, Policies};

use crate::ask::AskArgs;
use crate::rollout::say;

/// Show in what the policy that the controller holds back differs from the one in force. Exit code 0: none is held back;
/// 1: one is, or nobody is there.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    ask: AskArgs,
}

/// Release the policy that the controller has read and holds back. Nothing is uploaded: the files are the only source of
/// policy. Without --ack it shows the differences.
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// The name of the policy that was looked at: 16 hex digits
    #[arg(long, env = "PLIMSOLL_ACK", value_name = "HASH", value_parser = hash)]
    ack: Option<String>,
    #[command(flatten)]
    ask: AskArgs,
}

fn hash(text: &str) -> Result<String, String> {
    let is_hash = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let due = || format!("`{text}` names no policy: 16 hex digits, as `plimsoll diff` shows them");
    if is_hash { Ok(text.to_ascii_lowercase()) } else { Err(due()) }
}

/// Shows the differences.
///
/// # Errors
/// When the controller cannot be reached, or what it says cannot be written.
pub(crate) fn diff(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let policies: Policies = args.ask.get("/policy")?;
    let mut out = io::stdout().lock();
    say(&args.ask, &mut out, &policies, |out| write(out, &policies))?;
    out.flush()?;
    Ok(ExitCode::from(u8::from(policies.held.is_some())))
}

/// Releases the policy, or shows the differences.
///
/// # Errors
/// When the controller refuses or cannot be reached, or what it says cannot be written.
pub(crate) fn run(args: &ApplyArgs) -> anyhow::Result<ExitCode> {
    let Some(hash) = args.ack.clone() else { return diff(&DiffArgs { ask: args.ask.clone() }) };
    let policies: Policies = args.ask.post("/policy/ack", &Ack { hash })?;
    let mut out = io::stdout().lock();
    say(&args.ask, &mut out, &policies, |out| write(out, &policies))?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn write(out: &mut impl Write, policies: &Policies) -> io::Result<()> {
    writeln!(out, "in force: {}", policies.in_force)?;
    let Some(HeldStatus { hash, differences }) = &policies.held else {
        return writeln!(out, "nothing is held back");
    };
    writeln!(out, "held back: {hash}")?;
    differences.iter().try_for_each(|difference| writeln!(out, "  {difference}"))?;
    writeln!(out, "release it with `plimsoll apply --ack {hash}`, or change the file back")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_named_by_sixteen_hex_digits() {
        assert_eq!(hash("00AB98b3bfe0a6bb").unwrap(), "00ab98b3bfe0a6bb");
        for bad in ["", "0b98ab3bfe0a6b", "0b98ab3bfe0a6bb0f", "0b98ab3bfe0a6bbx"] {
            assert!(hash(bad).unwrap_err().contains("plimsoll diff"), "{bad}");
        }
    }
}
