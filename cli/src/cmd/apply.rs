//! `plimsoll diff`, `plimsoll apply` and `plimsoll undo`: review a policy before it is saved or while the controller holds
//! it back for its large changes, release it, and return to the one before.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueHint};
use plimsoll_controller::admin::rollout_routes::{Ack, DryRun, DryRunResult, NamedText, Undo};
use plimsoll_controller::admin::status::{HeldStatus, Policies};
use plimsoll_core::names::Text;
use plimsoll_host::regular_file;
use plimsoll_policy::{FILE_BYTES_MAX, Forecast, Shifts, Source, UnixSeconds};
use serde::Serialize;

use super::{exit_code, unusable};
use crate::admin_client::AdminArgs;
use crate::output::{percent, write_table};

/// Show how the policy that the controller holds back differs from the one in force, and what it would refuse
///
/// With --dry-run it shows the same of a file that is not saved yet, and changes nothing.
///
/// Exit code 0: the files are in force, or would be at once; 1: they are held back or refused, or would be held back, or no
/// controller answers; 2: invalid arguments or an invalid file.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Policy file to judge in place of the one that the controller has read
    #[arg(long, env = "PLIMSOLL_DRY_RUN", value_name = "FILE", value_hint = ValueHint::FilePath)]
    dry_run: Option<PathBuf>,
    /// Tenants file for --dry-run. Without it the tenants in force are taken
    #[arg(long, env = "PLIMSOLL_DRY_RUN_TENANTS", value_name = "FILE", requires = "dry_run", value_hint = ValueHint::FilePath)]
    tenants: Option<PathBuf>,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Release the policy that the controller has read and holds back
///
/// Nothing is uploaded: the files are the only source of policy. `plimsoll diff` shows the differences. Exit code 0:
/// released; 1: refused, or no controller answers; 2: invalid arguments.
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// Hash of the policy that was reviewed: 16 hex digits, as `plimsoll diff` shows them
    #[arg(long, env = "PLIMSOLL_ACK", value_name = "HASH", value_parser = parse_hash)]
    ack: String,
    /// Reason, kept in the events and the audit log
    #[arg(long, env = "PLIMSOLL_APPLY_REASON", value_name = "TEXT", value_parser = Text::new)]
    reason: Option<Text>,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Return to the policy before the last change, and hold the undone one back until its file changes
///
/// For a change that does harm while the file is not at hand. Without --reason it shows what it would change and refuse.
/// Guardrails judge it as they judge a change of the file. It ends no kill, and goes back one step; `plimsoll apply --ack
/// HASH` takes the undone policy back. Exit code 0: done, or shown; 1: refused, or no controller answers; 2: invalid
/// arguments.
#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    /// Reason, for the audit log. Without it nothing is changed
    #[arg(long, env = "PLIMSOLL_UNDO_REASON", value_name = "TEXT", value_parser = Text::new)]
    reason: Option<Text>,
    /// Return to it even if guardrails hold it back
    #[arg(long, env = "PLIMSOLL_RELEASE", requires = "reason")]
    release: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// The answer of `plimsoll diff` in JSON.
#[derive(Serialize)]
struct Diff<'a> {
    #[serde(flatten)]
    policies: &'a Policies,
    /// The effect of the policy that is held back.
    forecast: &'a Option<Forecast>,
}

fn parse_hash(text: &str) -> Result<String, String> {
    let is_hash = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let invalid = || {
        format!("`{text}` is not a policy hash: give 16 hex digits, as `plimsoll diff` shows them")
    };
    is_hash
        .then(|| text.to_ascii_lowercase())
        .ok_or_else(invalid)
}

pub(crate) fn diff(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let admin = &args.admin;
    if let Some(policy) = &args.dry_run {
        let tenants = args.tenants.as_deref().map(read).transpose()?;
        let policy = read(policy)?;
        let result: DryRunResult = admin.post("/policy/dry-run", &DryRun { policy, tenants })?;
        admin
            .output
            .print(&result, |out| write_dry_run(out, &result))?;
        return Ok(exit_code(result.judged.reasons.is_empty()));
    }
    let policies: Policies = admin.get("/policy")?;
    let forecast: Option<Forecast> = match &policies.held {
        Some(_) => admin.get("/policy/forecast")?,
        None => None,
    };
    admin.output.print(
        &Diff {
            policies: &policies,
            forecast: &forecast,
        },
        |out| write_policies(out, &policies, forecast.as_ref()),
    )?;
    Ok(exit_code(
        policies.held.is_none() && policies.refused.is_none(),
    ))
}

/// Reads a file to send. The controller finds its faults.
fn read(path: &Path) -> anyhow::Result<NamedText> {
    let name = path.display().to_string();
    let bytes = regular_file::read(path, FILE_BYTES_MAX);
    let bytes = bytes.map_err(|error| unusable(format_args!("{name} cannot be read: {error}")))?;
    let text = Source::from_bytes(&name, &bytes).map_err(unusable)?.text;
    Ok(NamedText {
        text: text.to_owned(),
        name,
    })
}

pub(crate) fn run(ApplyArgs { ack, reason, admin }: &ApplyArgs) -> anyhow::Result<ExitCode> {
    let asked = Ack {
        hash: ack.clone(),
        reason: reason.clone(),
    };
    let policies: Policies = admin.post("/policy/ack", &asked)?;
    admin
        .output
        .report(&policies, |out| write_policies(out, &policies, None))
}

pub(crate) fn undo(args: &UndoArgs) -> anyhow::Result<ExitCode> {
    let admin = &args.admin;
    let Some(reason) = args.reason.clone() else {
        let result: DryRunResult = admin.get("/policy/undo")?;
        return admin
            .output
            .report(&result, |out| write_undoable(out, &result));
    };
    let asked = Undo {
        reason,
        release: args.release,
    };
    let policies: Policies = admin.post("/policy/undo", &asked)?;
    admin
        .output
        .report(&policies, |out| write_policies(out, &policies, None))
}

fn write_policies(
    out: &mut dyn Write,
    policies: &Policies,
    forecast: Option<&Forecast>,
) -> io::Result<()> {
    writeln!(out, "in force: {}", policies.in_force)?;
    if let Some(refused) = &policies.refused {
        writeln!(out, "refused: the files as they are now: {refused}")?;
    }
    let Some(held) = &policies.held else {
        return writeln!(out, "nothing is held back");
    };
    writeln!(out, "held back: {}", held.hash)?;
    if let Some(since_s) = held.since_s {
        let since = UnixSeconds::from_secs(since_s);
        writeln!(out, "  by the traffic before {since}:")?;
    }
    write_judged(out, held)?;
    if let Some(forecast) = forecast {
        write_forecast(out, forecast)?;
    }
    if policies.refused.is_some() {
        return writeln!(
            out,
            "it cannot be released, because the files have changed since"
        );
    }
    writeln!(
        out,
        "release it with `plimsoll apply --ack {}`, or change the file back",
        held.hash
    )
}

fn write_dry_run(out: &mut dyn Write, result: &DryRunResult) -> io::Result<()> {
    let judged = &result.judged;
    writeln!(out, "in force: {}", result.in_force)?;
    if judged.hash == result.in_force {
        return writeln!(out, "the files are the same");
    }
    writeln!(out, "not saved: {}", judged.hash)?;
    write_judged(out, judged)?;
    write_forecast(out, &result.forecast)?;
    let would = match judged.reasons.is_empty() {
        true => "in force at once",
        false => "held back for the reasons marked with `!`",
    };
    writeln!(out, "saved, it would be {would}")
}

fn write_undoable(out: &mut dyn Write, result: &DryRunResult) -> io::Result<()> {
    writeln!(out, "in force: {}", result.in_force)?;
    writeln!(out, "before the last change: {}", result.judged.hash)?;
    write_judged(out, &result.judged)?;
    write_forecast(out, &result.forecast)?;
    let release = match result.judged.reasons.is_empty() {
        true => "",
        false => " --release",
    };
    writeln!(
        out,
        "return to it with `plimsoll undo --reason TEXT{release}`"
    )
}

fn write_judged(out: &mut dyn Write, judged: &HeldStatus) -> io::Result<()> {
    for reason in &judged.reasons {
        writeln!(out, "  ! {reason}")?;
    }
    judged
        .differences
        .iter()
        .try_for_each(|difference| writeln!(out, "  {difference}"))
}

fn write_forecast(out: &mut dyn Write, forecast: &Forecast) -> io::Result<()> {
    if forecast.buckets.largest.is_empty() {
        return writeln!(out, "no traffic was recorded to judge it by");
    }
    writeln!(
        out,
        "requests refused now and then, by the law on the traffic of the last minutes:"
    )?;
    write_shifts(out, "BUCKET", &forecast.buckets)?;
    write_shifts(out, "REFUSED MORE", &forecast.refused_more)?;
    write_shifts(out, "REFUSED LESS", &forecast.refused_less)
}

fn write_shifts(out: &mut dyn Write, heading: &str, shifts: &Shifts) -> io::Result<()> {
    if shifts.largest.is_empty() {
        return Ok(());
    }
    let rows = shifts.largest.iter().map(|shift| {
        let name = match &shift.tenant {
            Some(tenant) => format!("{} {tenant}", shift.bucket),
            None => shift.bucket.to_string(),
        };
        let offered = format!("{:.0}", shift.offered_rps);
        vec![name, offered, percent(shift.before), percent(shift.after)]
    });
    write_table(out, &[heading, "OFFERED/S", "NOW", "THEN"], rows)?;
    match shifts.more {
        0 => Ok(()),
        more => writeln!(out, "and {more} more"),
    }
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
