//! `plimsoll history`: exports the traffic history of a controller as CSV, or imports one.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use plimsoll_core::names::Bucket;
use plimsoll_host::regular_file;
use plimsoll_policy::UnixSeconds;
use serde::{Deserialize, Serialize};

use crate::admin_client::{AdminArgs, AdminError, ControllerArgs};
use crate::output::{self, Format, write_table};
use crate::shutdown;

/// Exit code for a file that cannot be read, or that the controller rejects as invalid.
const EXIT_INVALID: u8 = 2;
/// Maximum size of a file that a controller accepts, in bytes.
const IMPORT_BYTES_MAX: usize = 32 << 20;

/// Export the traffic history of a controller, or import one
#[derive(Debug, Subcommand)]
pub(crate) enum HistoryCommand {
    /// Write the requests/s offered to each bucket, minute by minute, to standard output
    Export(ExportArgs),
    /// Import past days, so that limits can be learned from them
    Import(ImportArgs),
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
The columns are time_utc,bucket,offered_rps,clean: the beginning of a minute, and the requests/s offered in it over all
zones, without those that exact quotas refuse from memory. A minute in which coin and guard refused more than 5 % of the
requests, or would have, or a kill was on, has clean=false: nothing is learned from it. Eight days are kept.

Examples:
  plimsoll history export --buckets checkout > week.csv
  plimsoll simulate scenario.yaml                # with load: { trace: { csv: week.csv } }")]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    controller: ControllerArgs,
    /// Only these buckets
    #[arg(
        long,
        env = "PLIMSOLL_BUCKETS",
        value_delimiter = ',',
        value_name = "NAME"
    )]
    buckets: Vec<Bucket>,
    /// First minute, such as 2026-12-01T00:00:00Z
    #[arg(long, env = "PLIMSOLL_FROM", value_name = "TIME", value_parser = UnixSeconds::parse)]
    from: Option<UnixSeconds>,
    /// First minute that is left out
    #[arg(long, env = "PLIMSOLL_TO", value_name = "TIME", value_parser = UnixSeconds::parse)]
    to: Option<UnixSeconds>,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
The file has the columns time_utc,bucket,offered_rps and optionally clean. Its rows need not be a minute apart, but a day
needs 60 of them. From Prometheus: sum(rate(http_requests_total[1m])) with a step of 60 s.

Exit code 0: imported; 1: the controller could not import it; 2: the file is invalid, with the line of the fault.")]
pub(crate) struct ImportArgs {
    /// CSV file; - is standard input
    #[arg(env = "PLIMSOLL_HISTORY", value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    admin: AdminArgs,
    /// Replace days that the controller already has; without it they are kept
    #[arg(long, env = "PLIMSOLL_REPLACE")]
    replace: bool,
}

#[derive(Debug, Deserialize, Serialize)]
struct Imported {
    minutes: usize,
    rows_of_today: usize,
    rows_of_nothing: usize,
    days: Vec<ImportedDay>,
}

#[derive(Debug, Deserialize, Serialize)]
struct ImportedDay {
    bucket: String,
    day: String,
    /// `added`, `replaced`, or why it does not count, see [`explanation`].
    result: String,
}

pub(crate) fn run(command: &HistoryCommand) -> anyhow::Result<ExitCode> {
    match command {
        HistoryCommand::Export(args) => shutdown::runtime()?.block_on(export(args)),
        HistoryCommand::Import(args) => import(args),
    }
}

/// Writes the rows as they arrive.
async fn export(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let port = args.controller.port()?;
    let names = args
        .buckets
        .iter()
        .map(Bucket::as_str)
        .collect::<Vec<_>>()
        .join(",");
    let query = [
        ("buckets", Some(names).filter(|names| !names.is_empty())),
        ("from", args.from.map(|from| from.to_string())),
        ("to", args.to.map(|to| to.to_string())),
    ];
    let query: Vec<_> = query
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect();
    let mut response = port.open(port.get("/history").query(&query)).await?;
    let mut out = output::stdout();
    while let Some(chunk) = response
        .chunk()
        .await
        .context("the controller closed the connection")?
    {
        out.write_all(&chunk)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn import(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let text = match read(&args.file) {
        Ok(text) => text,
        Err(error) => return invalid(args, &format!("{error:#}"), None),
    };
    let port = args.admin.controller.port()?;
    let request = port
        .upload("/history", "text/csv", text)
        .query(&[("replace", args.replace)]);
    let imported: Imported = match shutdown::runtime()?.block_on(port.answer(request)) {
        Ok(imported) => imported,
        Err(AdminError::Invalid { refusal, .. }) => {
            return invalid(args, &refusal.error, refusal.line);
        }
        Err(error) => bail!(error),
    };
    args.admin
        .output
        .report(&imported, |out| imported.write_text(out))
}

fn invalid(args: &ImportArgs, error: &str, line: Option<usize>) -> anyhow::Result<ExitCode> {
    match args.admin.output.format {
        Format::Text => {
            let place = line.map(|line| format!(":{line}")).unwrap_or_default();
            writeln!(output::stderr(), "{}{place}: {error}", args.file.display())?;
        }
        format => {
            let document = serde_json::json!({ "error": error, "line": line });
            format.document(&mut output::stdout(), &document)?;
        }
    }
    Ok(ExitCode::from(EXIT_INVALID))
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if file == Path::new("-") {
        io::stdin()
            .lock()
            .take(IMPORT_BYTES_MAX as u64 + 1)
            .read_to_end(&mut bytes)?;
    } else {
        bytes = regular_file::read(file, IMPORT_BYTES_MAX)?;
    }
    if bytes.len() > IMPORT_BYTES_MAX {
        bail!("larger than 32 MiB; split the file and import each part");
    }
    Ok(bytes)
}

impl Imported {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let row = |day: &ImportedDay| {
            vec![
                day.day.clone(),
                day.bucket.clone(),
                explanation(&day.result).into(),
            ]
        };
        write_table(out, &["DAY", "BUCKET", "RESULT"], self.days.iter().map(row))?;
        let added = self
            .days
            .iter()
            .filter(|day| matches!(&*day.result, "added" | "replaced"))
            .count();
        writeln!(
            out,
            "{} minutes read, {added} of {} days count",
            self.minutes,
            self.days.len()
        )?;
        if self.rows_of_today > 0 {
            writeln!(
                out,
                "{} rows skipped: today is still being counted",
                self.rows_of_today
            )?;
        }
        if self.rows_of_nothing > 0 {
            writeln!(
                out,
                "{} rows skipped: nothing was offered in them",
                self.rows_of_nothing
            )?;
        }
        Ok(())
    }
}

fn explanation(result: &str) -> &str {
    match result {
        "kept" => "kept: the controller already has this day (--replace replaces it)",
        "too_few_minutes" => "does not count: fewer than 60 clean minutes",
        "cut" => "does not count: too few clean minutes to know its peak",
        "too_old" => "does not count: older than the days that are kept",
        "no_room" => {
            "does not count: the controller keeps 1,000 buckets and has no room for another"
        }
        other => other,
    }
}
