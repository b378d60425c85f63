//! `plimsoll history`: what was offered minute by minute leaves a controller as CSV, and enters one.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use clap::{Args, Subcommand, ValueEnum};
use http_body_util::BodyExt;
use plimsoll_core::bucket::Bucket;
use plimsoll_core::policy::UnixSeconds;
use serde::{Deserialize, Serialize};

use crate::ask::{self, AskError, ControllerArgs, Output, Question};
use crate::shutdown;

/// The exit code for input that is not valid, as the controller judges it.
const EXIT_REFUSED: u8 = 2;
/// What a controller takes at once.
const IMPORT_BYTES_MAX: usize = 32 << 20;

/// Take the history of traffic out of a controller, or bring one in
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    #[command(subcommand)]
    command: HistoryCommand,
}

#[derive(Debug, Subcommand)]
enum HistoryCommand {
    /// Write what was offered to each bucket, minute by minute, to standard output
    Export(ExportArgs),
    /// Bring in days that are over, so that limits can be learned from them
    Import(ImportArgs),
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
The columns are time_utc,bucket,offered_rps,clean: the beginning of a minute, and the requests/s offered in it over all
zones. Minutes in which something was refused, or would have been, or a kill was on, have clean=false: nothing is learned
from them. Eight days are kept.

  plimsoll history export --buckets checkout > week.csv
  plimsoll simulate scenario.yaml                # with load: { trace: { csv: week.csv } }")]
struct ExportArgs {
    #[command(flatten)]
    controller: ControllerArgs,
    /// Only these buckets
    #[arg(long, env = "PLIMSOLL_BUCKETS", value_delimiter = ',', value_name = "NAME")]
    buckets: Vec<Bucket>,
    /// From this minute on, such as 2026-12-01T00:00:00Z
    #[arg(long, env = "PLIMSOLL_FROM", value_name = "TIME", value_parser = UnixSeconds::parse)]
    from: Option<UnixSeconds>,
    /// Up to this minute, and not with it
    #[arg(long, env = "PLIMSOLL_TO", value_name = "TIME", value_parser = UnixSeconds::parse)]
    to: Option<UnixSeconds>,
    /// How to write it
    #[arg(long, short, value_enum, default_value_t, env = "PLIMSOLL_OUTPUT", value_name = "FORMAT")]
    output: ExportOutput,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
The file has the columns time_utc,bucket,offered_rps and, if wanted, clean. Its rows need not be a minute apart, but a day
needs 60 of them. From Prometheus: sum(rate(http_requests_total[1m])) with a step of 60 s.

Exit code 0: taken; 2: something is wrong with the file, with its line; 1: the controller could not do it.")]
struct ImportArgs {
    /// The CSV file; - is standard input
    #[arg(env = "PLIMSOLL_HISTORY", value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    controller: ControllerArgs,
    /// Days that the controller knows are replaced; otherwise they stay
    #[arg(long, env = "PLIMSOLL_REPLACE")]
    replace: bool,
    /// How to say what came of it
    #[arg(long, short, value_enum, default_value_t, env = "PLIMSOLL_OUTPUT", value_name = "FORMAT")]
    output: Output,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ExportOutput {
    /// As `history import` and `simulate` read it
    #[default]
    Csv,
    /// One JSON object for each row, on a line of its own
    Json,
}

/// One row of an export, in the form scripts read.
#[derive(Debug, Serialize)]
struct Row<'a> {
    time_utc: &'a str,
    bucket: &'a str,
    offered_rps: f64,
    clean: bool,
}

/// What became of an import, as the controller says it.
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

/// Runs the command.
///
/// # Errors
/// When the controller cannot be reached or cannot do it, or a file cannot be read or written.
pub(crate) fn run(args: &HistoryArgs) -> anyhow::Result<ExitCode> {
    let runtime = shutdown::runtime()?;
    match &args.command {
        HistoryCommand::Export(args) => runtime.block_on(export(args)),
        HistoryCommand::Import(args) => runtime.block_on(import(args)),
    }
}

async fn export(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let mut wanted: Vec<String> = Vec::new();
    if !args.buckets.is_empty() {
        // Names have no character that a query would need to have written otherwise.
        let names: Vec<&str> = args.buckets.iter().map(Bucket::as_str).collect();
        wanted.push(format!("buckets={}", names.join(",")));
    }
    wanted.extend(args.from.map(|from| format!("from={from}")));
    wanted.extend(args.to.map(|to| format!("to={to}")));
    let question = Question::get(format!("/history?{}", wanted.join("&")));
    let answer = args.controller.open(&question).await?;
    let mut body = answer.into_body();
    let mut out = io::stdout().lock();
    let mut rest = Vec::new();
    let mut line_number = 0_u64;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.context("the controller broke off")?.into_data() else { continue };
        match args.output {
            ExportOutput::Csv => out.write_all(&data)?,
            ExportOutput::Json => {
                rest.extend_from_slice(&data);
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = rest.drain(..=end).collect();
                    line_number += 1;
                    if line_number > 1 {
                        write_json(&mut out, std::str::from_utf8(&line)?.trim_end())?;
                    }
                }
            }
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn write_json(out: &mut impl Write, line: &str) -> anyhow::Result<()> {
    let cells: Vec<&str> = line.split(',').collect();
    let [time_utc, bucket, offered, clean] = cells[..] else { bail!("the controller sent {line:?}") };
    let row = Row { time_utc, bucket, offered_rps: offered.parse()?, clean: clean == "true" };
    serde_json::to_writer(&mut *out, &row)?;
    Ok(writeln!(out)?)
}

async fn import(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let text = match read(&args.file) {
        Ok(text) => text,
        Err(error) => return refused(args, &format!("{error:#}"), None),
    };
    let question = Question::file(format!("/history?replace={}", args.replace), "text/csv", text);
    let answer = match args.controller.open(&question).await {
        Ok(answer) => answer,
        Err(AskError::Wrong { why, .. }) => return refused(args, &why.error, why.line),
        Err(error) => bail!(error),
    };
    let bytes = ask::whole(answer).await.map_err(|why| anyhow!(why))?;
    let imported: Imported =
        serde_json::from_slice(&bytes).context("the controller's answer cannot be read")?;
    match args.output {
        Output::Text => imported.write_text(&mut io::stdout().lock())?,
        Output::Json => writeln!(io::stdout().lock(), "{}", String::from_utf8_lossy(&bytes))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Says what is wrong with the file.
fn refused(args: &ImportArgs, error: &str, line: Option<usize>) -> anyhow::Result<ExitCode> {
    match args.output {
        Output::Text => {
            let place = line.map(|line| format!("{line}: ")).unwrap_or_default();
            eprintln!("{}:{place}{error}", args.file.display());
        }
        Output::Json => {
            let said = serde_json::json!({ "error": error, "line": line });
            writeln!(io::stdout().lock(), "{said}")?;
        }
    }
    Ok(ExitCode::from(EXIT_REFUSED))
}

fn read(file: &Path) -> anyhow::Result<Bytes> {
    let mut bytes = Vec::new();
    let bound = IMPORT_BYTES_MAX as u64 + 1;
    if file == Path::new("-") {
        io::stdin().lock().take(bound).read_to_end(&mut bytes)?;
    } else {
        File::open(file)?.take(bound).read_to_end(&mut bytes)?;
    }
    if bytes.len() > IMPORT_BYTES_MAX {
        bail!("more than 32 MiB; bring it in in parts");
    }
    Ok(bytes.into())
}

impl Imported {
    fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        for day in &self.days {
            writeln!(out, "{}  {}  {}", day.day, day.bucket, meaning(&day.result))?;
        }
        let added =
            self.days.iter().filter(|day| matches!(day.result.as_str(), "added" | "replaced")).count();
        writeln!(out, "{} minutes read, {added} of {} days count", self.minutes, self.days.len())?;
        if self.rows_of_today > 0 {
            writeln!(out, "{} rows of today left out: it is still being counted", self.rows_of_today)?;
        }
        if self.rows_of_nothing > 0 {
            writeln!(out, "{} rows left out in which nothing was offered", self.rows_of_nothing)?;
        }
        Ok(())
    }
}

/// What the controller says of a day, for people.
fn meaning(result: &str) -> &str {
    match result {
        "added" => "added",
        "replaced" => "replaced",
        "kept" => "kept as it was: it is known already (--replace)",
        "too_few_minutes" => "does not count: fewer than 60 clean minutes",
        "cut" => "does not count: so many minutes are not clean that its peak cannot be told",
        "too_old" => "does not count: older than all that are remembered",
        "no_room" => "does not count: the controller remembers 1,000 buckets and has no room for more",
        other => other,
    }
}
