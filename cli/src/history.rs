//! `plimsoll history`: what was offered minute by minute leaves a controller as CSV, and enters one.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use clap::{Args, Subcommand, ValueEnum};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use plimsoll_core::bucket::Bucket;
use plimsoll_core::policy::UnixSeconds;
use serde::{Deserialize, Serialize};

use crate::shutdown;

/// The exit code for input that is not valid, as the controller judges it.
const EXIT_REFUSED: u8 = 2;
/// What a controller takes at once, and one byte more, which it will refuse.
const IMPORT_BYTES_MAX: u64 = (32 << 20) + 1;
/// A bound on answers that are not streamed: a line for each day of each bucket.
const ANSWER_BYTES_MAX: usize = 64 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

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

/// Where the controller is.
#[derive(Debug, Args)]
struct Admin {
    /// The admin address of the controller, on this machine
    #[arg(long, env = "PLIMSOLL_ADMIN", value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, plimsoll_controller::ADMIN_PORT)))]
    admin: SocketAddr,
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
    admin: Admin,
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
    admin: Admin,
    /// Days that the controller knows are replaced; otherwise they stay
    #[arg(long, env = "PLIMSOLL_REPLACE")]
    replace: bool,
    /// How to say what came of it
    #[arg(long, short, value_enum, default_value_t, env = "PLIMSOLL_OUTPUT", value_name = "FORMAT")]
    output: ImportOutput,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ExportOutput {
    /// As `history import` and `simulate` read it
    #[default]
    Csv,
    /// One JSON object for each row, on a line of its own
    Json,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ImportOutput {
    /// For people
    #[default]
    Text,
    /// For scripts: one JSON object on standard output, whatever came of it
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

/// Why the controller did not do it, as it says it.
#[derive(Debug, Deserialize)]
struct Problem {
    error: String,
    line: Option<usize>,
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
    let path = format!("/history?{}", wanted.join("&"));
    let answer = send(args.admin.admin, Method::GET, &path, Bytes::new()).await?;
    if answer.status() != StatusCode::OK {
        let problem = problem(answer).await?;
        bail!(problem.error);
    }
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
        Err(error) => {
            eprintln!("error: {error:#}");
            return Ok(ExitCode::from(EXIT_REFUSED));
        }
    };
    let path = format!("/history?replace={}", args.replace);
    let answer = send(args.admin.admin, Method::POST, &path, text).await?;
    let status = answer.status();
    if status == StatusCode::OK {
        let bytes = bounded(answer).await?;
        let imported: Imported =
            serde_json::from_slice(&bytes).context("the controller's answer cannot be read")?;
        match args.output {
            ImportOutput::Text => imported.write_text(&mut io::stdout().lock())?,
            ImportOutput::Json => writeln!(io::stdout().lock(), "{}", String::from_utf8_lossy(&bytes))?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let problem = match status {
        StatusCode::PAYLOAD_TOO_LARGE => {
            Problem { error: "more than 32 MiB; bring it in in parts".to_owned(), line: None }
        }
        _ => problem(answer).await?,
    };
    if !status.is_client_error() {
        bail!(problem.error);
    }
    let place = problem.line.map(|line| format!("{line}: ")).unwrap_or_default();
    match args.output {
        ImportOutput::Text => eprintln!("{}:{place}{}", args.file.display(), problem.error),
        ImportOutput::Json => {
            let said = serde_json::json!({ "error": problem.error, "line": problem.line });
            writeln!(io::stdout().lock(), "{said}")?;
        }
    }
    Ok(ExitCode::from(EXIT_REFUSED))
}

fn read(file: &Path) -> anyhow::Result<Bytes> {
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        io::stdin().lock().take(IMPORT_BYTES_MAX).read_to_end(&mut bytes)
    } else {
        File::open(file).and_then(|file| file.take(IMPORT_BYTES_MAX).read_to_end(&mut bytes))
    };
    read.with_context(|| file.display().to_string())?;
    Ok(bytes.into())
}

async fn send(
    admin: SocketAddr,
    method: Method,
    path: &str,
    body: Bytes,
) -> anyhow::Result<http::Response<Incoming>> {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    let request = Request::builder()
        .method(method)
        .uri(format!("http://{admin}{path}"))
        .header(header::CONTENT_TYPE, "text/csv")
        .body(Full::new(body))?;
    client.request(request).await.map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        anyhow!("no controller at http://{admin}: {error}{cause}; say where it is with --admin")
    })
}

async fn bounded(answer: http::Response<Incoming>) -> anyhow::Result<Bytes> {
    let body = http_body_util::Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
    Ok(body.collect().await.map_err(|error| anyhow!("the controller broke off: {error}"))?.to_bytes())
}

async fn problem(answer: http::Response<Incoming>) -> anyhow::Result<Problem> {
    let status = answer.status();
    let bytes = bounded(answer).await?;
    let said = || Problem { error: format!("{status}: {}", String::from_utf8_lossy(&bytes)), line: None };
    Ok(serde_json::from_slice(&bytes).unwrap_or_else(|_| said()))
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
