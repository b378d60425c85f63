//! `plimsoll audit`: shows the audit log of a controller, and verifies that no line was changed.

mod answers;
mod remote;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueHint};
use plimsoll_controller::audit::{Fault, Line, Snapshot, Verified};
use serde_json::json;

use crate::admin_client::AdminArgs;
use crate::output::{self, Format, json_line};
use crate::shutdown;

/// The exit code for a log with a fault.
const EXIT_FAULT: u8 = 1;
/// The exit code for a file that cannot be read.
const EXIT_INVALID: u8 = 2;

/// Show the audit log of the controller, or verify it
///
/// The log has a line for each command and each change that the controller made by itself. Each line contains
/// the hash of the one before it, and the file audit.head names the last line.
#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Show the latest lines: time, who, role, from where, what, the states before and after, and why
    Show {
        /// Number of lines
        #[arg(long, env = "PLIMSOLL_LAST", value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
        last: u64,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Find the first line that was edited, removed, reordered or truncated
    ///
    /// Exit code 0: the log is whole, and the number of lines and the hash of the last one are shown; 1: a line is
    /// bad, and it is named, or no controller answers; 2: invalid arguments, or the file cannot be read.
    Verify {
        #[command(flatten)]
        place: PlaceArgs,
    },
}

/// The place of a log.
#[derive(Debug, Args)]
struct PlaceArgs {
    /// Read files instead of asking a controller: a state directory or its audit.log stand for the whole log, and any
    /// other file for itself
    #[arg(long, env = "PLIMSOLL_AUDIT_FILE", value_name = "PATH", value_hint = ValueHint::AnyPath)]
    file: Option<PathBuf>,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Runs the command.
///
/// # Errors
/// The controller cannot be reached, or its answer cannot be read or printed.
pub(crate) fn run(args: &AuditArgs) -> anyhow::Result<ExitCode> {
    let (place, last) = match &args.command {
        AuditCommand::Show { last, place } => (place, Some(*last)),
        AuditCommand::Verify { place } => (place, None),
    };
    let format = place.admin.output.format;
    let Some(path) = &place.file else {
        let controller = &place.admin.controller;
        return shutdown::runtime()?.block_on(async {
            match last {
                Some(last) => show(&remote::last_lines(controller, last).await?, format),
                None => report(&remote::verify(controller).await?, format),
            }
        });
    };
    let read = Snapshot::open(path).and_then(|mut snapshot| {
        let Some(last) = last else { return Ok(Err(snapshot.verify()?)) };
        snapshot.last(last)?;
        let mut lines = Vec::new();
        snapshot.each_line(|_, line| lines.push(parse(line)))?;
        Ok(Ok(lines))
    });
    match read {
        Ok(Ok(lines)) => show(&lines, format),
        Ok(Err(verified)) => report(&verified, format),
        Err(error) => {
            writeln!(output::stderr(), "error: the audit log at {} cannot be read: {error}", path.display())?;
            Ok(ExitCode::from(EXIT_INVALID))
        }
    }
}

/// Parses a line of the log; the text of one that is none.
fn parse(bytes: &[u8]) -> Result<Line, String> {
    let text = String::from_utf8_lossy(bytes);
    serde_json::from_str(&text).map_err(|_| text.trim_end().to_owned())
}

fn show(lines: &[Result<Line, String>], format: Format) -> anyhow::Result<ExitCode> {
    let mut out = output::stdout();
    match format {
        Format::Text => answers::write_table(&mut out, lines)?,
        // Bytes that are no line are left to `verify`.
        Format::Json => lines.iter().flatten().try_for_each(|line| json_line(&mut out, line))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn report(verified: &Result<Verified, Fault>, format: Format) -> anyhow::Result<ExitCode> {
    let mut out = output::stdout();
    match (format, verified) {
        (Format::Text, Ok(verified)) => answers::write_verified(&mut out, verified)?,
        (Format::Text, Err(fault)) => writeln!(out, "{fault}")?,
        (Format::Json, Ok(log)) => json_line(&mut out, &json!({ "whole": true, "log": log }))?,
        (Format::Json, Err(fault)) => json_line(&mut out, &json!({ "whole": false, "fault": fault }))?,
    }
    Ok(ExitCode::from(if verified.is_ok() { 0 } else { EXIT_FAULT }))
}
