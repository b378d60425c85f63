//! `plimsoll history import`: uploads past days and shows which of them count.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use clap::Args;
use plimsoll_host::regular_file;
use serde::Deserialize;

use crate::admin_client::{AdminArgs, AdminError, Request, read_body};
use crate::output::{self, Format, json_line};

/// The exit code for input that the controller rejects as invalid.
const EXIT_INVALID: u8 = 2;
/// The largest file that a controller accepts.
const IMPORT_BYTES_MAX: usize = 32 << 20;

#[derive(Debug, Args)]
#[command(after_long_help = "\
The file has the columns time_utc,bucket,offered_rps and optionally clean. Its rows need not be a minute apart, but a day
needs 60 of them. From Prometheus: sum(rate(http_requests_total[1m])) with a step of 60 s.

Exit code 0: imported; 1: the controller could not import it; 2: the file is invalid, with the line of the fault.")]
pub(super) struct ImportArgs {
    /// CSV file; - is standard input
    #[arg(env = "PLIMSOLL_HISTORY", value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    admin: AdminArgs,
    /// Replace days that the controller already has; without it they are kept
    #[arg(long, env = "PLIMSOLL_REPLACE")]
    replace: bool,
}

/// The controller's answer to an import.
#[derive(Debug, Deserialize)]
struct Imported {
    minutes: usize,
    rows_of_today: usize,
    rows_of_nothing: usize,
    days: Vec<ImportedDay>,
}

#[derive(Debug, Deserialize)]
struct ImportedDay {
    bucket: String,
    day: String,
    result: String,
}

pub(super) async fn run(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let text = match read(&args.file) {
        Ok(text) => text,
        Err(error) => return invalid(args, &format!("{error:#}"), None),
    };
    let request = Request::upload(format!("/history?replace={}", args.replace), "text/csv", text);
    let response = match args.admin.controller.open(&request).await {
        Ok(response) => response,
        Err(AdminError::Invalid { refusal, .. }) => return invalid(args, &refusal.error, refusal.line),
        Err(error) => bail!(error),
    };
    let body = read_body(response).await.map_err(|cause| anyhow!(cause))?;
    let answer = "the controller's answer cannot be parsed";
    let imported: Imported = serde_json::from_slice(&body).context(answer)?;
    let document: serde_json::Value = serde_json::from_slice(&body).context(answer)?;
    args.admin.output.print(&document, |out| imported.write_text(out))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what is wrong with the file.
fn invalid(args: &ImportArgs, error: &str, line: Option<usize>) -> anyhow::Result<ExitCode> {
    match args.admin.output.format {
        Format::Text => {
            let place = line.map(|line| format!("{line}: ")).unwrap_or_default();
            writeln!(output::stderr(), "{}:{place}{error}", args.file.display())?;
        }
        Format::Json => {
            json_line(&mut output::stdout(), &serde_json::json!({ "error": error, "line": line }))?;
        }
    }
    Ok(ExitCode::from(EXIT_INVALID))
}

fn read(file: &Path) -> anyhow::Result<Bytes> {
    let mut bytes = Vec::new();
    if file == Path::new("-") {
        io::stdin().lock().take(IMPORT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    } else {
        bytes = regular_file::read(file, IMPORT_BYTES_MAX)?;
    }
    if bytes.len() > IMPORT_BYTES_MAX {
        bail!("larger than 32 MiB; split the file and import each part");
    }
    Ok(bytes.into())
}

impl Imported {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        for day in &self.days {
            writeln!(out, "{}  {}  {}", day.day, day.bucket, explanation(&day.result))?;
        }
        let added =
            self.days.iter().filter(|day| matches!(day.result.as_str(), "added" | "replaced")).count();
        writeln!(out, "{} minutes read, {added} of {} days count", self.minutes, self.days.len())?;
        if self.rows_of_today > 0 {
            writeln!(out, "{} rows skipped: today is still being counted", self.rows_of_today)?;
        }
        if self.rows_of_nothing > 0 {
            writeln!(out, "{} rows skipped: nothing was offered in them", self.rows_of_nothing)?;
        }
        Ok(())
    }
}

/// Explains the result that the controller gives for a day.
fn explanation(result: &str) -> &str {
    match result {
        "added" => "added",
        "replaced" => "replaced",
        "kept" => "kept: the controller already has this day (--replace replaces it)",
        "too_few_minutes" => "does not count: fewer than 60 clean minutes",
        "cut" => "does not count: too few clean minutes to know its peak",
        "too_old" => "does not count: older than the days that are kept",
        "no_room" => "does not count: the controller keeps 1,000 buckets and has no room for another",
        other => other,
    }
}
