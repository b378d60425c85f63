//! `plimsoll audit`: shows the audit log of a controller, and verifies that no line was changed.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueHint};
use plimsoll_controller::audit::{
    Fault, HEAD_HEADER, Head, LINE_BYTES_MAX, ROUTE, Record, ShownLine, Snapshot, Verified,
    Verifier,
};
use reqwest::Response;
use serde_json::json;

use crate::admin_client::{AdminArgs, ControllerArgs};
use crate::cmd::{exit_code, unusable};
use crate::output::{self, Format, counted, write_table};
use crate::shutdown;

/// Show the audit log of the controller, or verify it
///
/// The log has a line for each command and each change that the controller made by itself. Each line contains
/// the hash of the one before it, and the file audit.head names the last line.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Show the latest lines: time, who, role, from where, what, the states before and after, and why
    ///
    /// Of controllers that share a store, the latest 10,000 lines of all leaders are shown. Each verifies its own files.
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
pub(crate) struct PlaceArgs {
    /// Read files instead of asking a controller: a state directory or its audit.log stand for the whole log, and any
    /// other file for itself
    #[arg(long, env = "PLIMSOLL_AUDIT_FILE", value_name = "PATH", value_hint = ValueHint::AnyPath)]
    file: Option<PathBuf>,
    #[command(flatten)]
    admin: AdminArgs,
}

/// A line of the log, or the text of an invalid line.
type Shown = Result<ShownLine, String>;

pub(crate) fn run(command: &AuditCommand) -> anyhow::Result<ExitCode> {
    let runtime = shutdown::runtime()?;
    match command {
        AuditCommand::Show { last, place } => {
            let lines = match &place.file {
                None => runtime.block_on(remote_lines(&place.admin.controller, *last))?,
                Some(path) => {
                    let mut lines = Vec::new();
                    let read = Snapshot::open(path).and_then(|mut log| {
                        log.last(*last)?;
                        log.each_line(|_, line| lines.push(parse(line)))
                    });
                    read.map_err(|error| unread(path, &error))?;
                    lines
                }
            };
            show(&lines, place.admin.output.format)
        }
        AuditCommand::Verify { place } => {
            let verified = match &place.file {
                None => runtime.block_on(verify_remote(&place.admin.controller))?,
                Some(path) => Snapshot::open(path)
                    .and_then(|log| log.verify())
                    .map_err(|error| unread(path, &error))?,
            };
            report(&verified, place.admin.output.format)
        }
    }
}

fn unread(path: &Path, error: &io::Error) -> anyhow::Error {
    let path = path.display();
    unusable(format_args!(
        "the audit log at {path} cannot be read: {error}"
    ))
}

fn parse(bytes: &[u8]) -> Shown {
    let text = String::from_utf8_lossy(bytes);
    serde_json::from_str(&text).map_err(|_| text.trim_end().to_owned())
}

async fn remote_lines(controller: &ControllerArgs, last: u64) -> anyhow::Result<Vec<Shown>> {
    let port = controller.port()?;
    let mut lines = Vec::new();
    let response = port.open(port.get(&format!("{ROUTE}?last={last}"))).await?;
    each_line(response, |line| lines.push(parse(line))).await?;
    Ok(lines)
}

/// Verifies all lines on this machine, against the head that the controller names.
async fn verify_remote(controller: &ControllerArgs) -> anyhow::Result<Result<Verified, Fault>> {
    let port = controller.port()?;
    let response = port.open(port.get(ROUTE)).await?;
    let url = response.url().to_string();
    let head = response.headers().get(HEAD_HEADER);
    let Some(head) = head.and_then(|head| serde_json::from_slice(head.as_bytes()).ok()) else {
        bail!(
            "{url} names no head of its log: verify the files on the controller's machine, with --file STATE_DIR"
        );
    };
    let mut verifier = Verifier::new(Some::<Head>(head));
    verifier.file(&url);
    each_line(response, |line| verifier.line(line)).await?;
    Ok(verifier.finish())
}

/// Calls `take` with each line and its line feed. A line that is too long is passed in pieces.
async fn each_line(mut response: Response, mut take: impl FnMut(&[u8])) -> anyhow::Result<()> {
    let mut rest = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .context("the controller closed the connection")?
    {
        rest.extend_from_slice(&chunk);
        let whole = rest
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        rest.drain(..whole)
            .as_slice()
            .split_inclusive(|byte| *byte == b'\n')
            .for_each(&mut take);
        if rest.len() > LINE_BYTES_MAX {
            take(&rest);
            rest.clear();
        }
    }
    if !rest.is_empty() {
        take(&rest);
    }
    Ok(())
}

fn show(lines: &[Shown], format: Format) -> anyhow::Result<ExitCode> {
    let mut out = output::stdout();
    match format {
        Format::Text if lines.is_empty() => writeln!(out, "the audit log has no lines")?,
        Format::Text => {
            let headings = [
                "LINE",
                "TIME",
                "WHO",
                "ROLE",
                "FROM",
                "WHAT",
                "BEFORE -> AFTER",
                "WHY",
            ];
            write_table(&mut out, &headings, lines.iter().map(row))?;
        }
        // Bytes that are not a line are left out: `verify` reports them.
        format => lines
            .iter()
            .flatten()
            .try_for_each(|line| format.document(&mut out, line))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn row(line: &Shown) -> Vec<String> {
    let ShownLine {
        member,
        seq,
        record,
        ..
    } = match line {
        Ok(line) => line,
        Err(text) => {
            let mut row = vec![String::new(); 5];
            row.push(format!(
                "not a line of the log, see `plimsoll audit verify`: {text}"
            ));
            return row;
        }
    };
    let Record {
        time,
        who,
        role,
        from,
        what,
        before,
        after,
        why,
        of,
        late,
    } = record.clone();
    let of = of.map(|of| format!(", of line {of}")).unwrap_or_default();
    let late = if late { ", written late" } else { "" };
    let change = if before.is_empty() {
        after
    } else {
        format!("{before} -> {after}")
    };
    vec![
        member
            .as_ref()
            .map_or_else(|| seq.to_string(), |member| format!("{member} {seq}")),
        time,
        who,
        role,
        from,
        format!("{what}{of}{late}"),
        change,
        why,
    ]
}

fn report(verified: &Result<Verified, Fault>, format: Format) -> anyhow::Result<ExitCode> {
    let mut out = output::stdout();
    match (format, verified) {
        (Format::Text, Ok(verified)) => write_verified(&mut out, verified)?,
        (Format::Text, Err(fault)) => writeln!(out, "{fault}")?,
        (format, Ok(log)) => {
            format.document(&mut out, &json!({ "whole": true, "log": log }))?;
        }
        (format, Err(fault)) => {
            format.document(&mut out, &json!({ "whole": false, "fault": fault }))?;
        }
    }
    Ok(exit_code(verified.is_ok()))
}

fn write_verified(out: &mut dyn Write, verified: &Verified) -> io::Result<()> {
    let Verified {
        lines,
        first,
        last: Head { seq, hash, .. },
        after_head,
        torn_bytes,
    } = verified;
    let lines_of = |count| counted(count, "line");
    let span = first.map(|first| format!(", {first} to {seq}, the last one with hash {hash}"));
    writeln!(
        out,
        "whole: {}{}",
        lines_of(*lines),
        span.unwrap_or_default()
    )?;
    if *after_head > 0 {
        let count = lines_of(*after_head);
        writeln!(
            out,
            "{count} after the head: written a moment ago, or left by a crash"
        )?;
    }
    if *torn_bytes > 0 {
        writeln!(
            out,
            "{torn_bytes} bytes without an end after the last line: being written, or left by a crash"
        )?;
    }
    Ok(())
}
