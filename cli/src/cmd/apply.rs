//! `plimsoll diff` and `plimsoll apply`: review and release a policy that the controller holds back
//! for its large changes.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use plimsoll_controller::admin::rollout_routes::Ack;
use plimsoll_controller::admin::status::{HeldStatus, Policies};

use crate::admin_client::AdminArgs;

/// Release the policy that the controller has read and holds back
///
/// Nothing is uploaded: the files are the only source of policy. `plimsoll diff` shows the differences. Exit code 0:
/// released; 1: refused, or no controller answers; 2: invalid arguments.
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// Hash of the policy that was reviewed: 16 hex digits, as `plimsoll diff` shows them
    #[arg(long, env = "PLIMSOLL_ACK", value_name = "HASH", value_parser = parse_hash)]
    ack: String,
    #[command(flatten)]
    admin: AdminArgs,
}

fn parse_hash(text: &str) -> Result<String, String> {
    let is_hash = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let invalid = || {
        format!("`{text}` is not a policy hash: give 16 hex digits, as `plimsoll diff` shows them")
    };
    if is_hash {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(invalid())
    }
}

pub(crate) fn diff(admin: &AdminArgs) -> anyhow::Result<ExitCode> {
    let policies: Policies = admin.get("/policy")?;
    admin
        .output
        .print(&policies, |out| write_policies(out, &policies))?;
    Ok(ExitCode::from(u8::from(
        policies.held.is_some() || policies.refused.is_some(),
    )))
}

pub(crate) fn run(ApplyArgs { ack, admin }: &ApplyArgs) -> anyhow::Result<ExitCode> {
    let policies: Policies = admin.post("/policy/ack", &Ack { hash: ack.clone() })?;
    admin
        .output
        .print(&policies, |out| write_policies(out, &policies))?;
    Ok(ExitCode::SUCCESS)
}

fn write_policies(out: &mut dyn Write, policies: &Policies) -> io::Result<()> {
    writeln!(out, "in force: {}", policies.in_force)?;
    if let Some(refused) = &policies.refused {
        writeln!(out, "refused: the files as they are now: {refused}")?;
    }
    let Some(HeldStatus {
        hash,
        reasons,
        differences,
        ..
    }) = &policies.held
    else {
        return writeln!(out, "nothing is held back");
    };
    writeln!(out, "held back: {hash}")?;
    reasons
        .iter()
        .try_for_each(|reason| writeln!(out, "  ! {reason}"))?;
    differences
        .iter()
        .try_for_each(|difference| writeln!(out, "  {difference}"))?;
    if policies.refused.is_some() {
        return writeln!(
            out,
            "it cannot be released, because the files have changed since"
        );
    }
    writeln!(
        out,
        "release it with `plimsoll apply --ack {hash}`, or change the file back"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_hash_is_sixteen_hex_digits() {
        assert_eq!(parse_hash("00AB98b3bfe0a6bb").unwrap(), "00ab98b3bfe0a6bb");
        for bad in [
            "",
            "0b98ab3bfe0a6b",
            "0b98ab3bfe0a6bb0f",
            "0b98ab3bfe0a6bbx",
        ] {
            assert!(
                parse_hash(bad).unwrap_err().contains("plimsoll diff"),
                "{bad}"
            );
        }
    }
}
