//! `plimsoll history export`: the history as CSV or JSON lines, written as it arrives.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use plimsoll_core::names::Bucket;
use plimsoll_policy::UnixSeconds;
use serde::Serialize;

use crate::admin_client::{ControllerArgs, Request};
use crate::output::{self, json_line};

#[derive(Debug, Args)]
#[command(after_long_help = "\
The columns are time_utc,bucket,offered_rps,clean: the beginning of a minute, and the requests/s offered in it over all
zones. A minute in which more than 5 % of the requests were refused, or would have been, or a kill was on, has clean=false:
nothing is learned from it. Eight days are kept.

Examples:
  plimsoll history export --buckets checkout > week.csv
  plimsoll simulate scenario.yaml                # with load: { trace: { csv: week.csv } }")]
pub(super) struct ExportArgs {
    #[command(flatten)]
    controller: ControllerArgs,
    /// Only these buckets
    #[arg(long, env = "PLIMSOLL_BUCKETS", value_delimiter = ',', value_name = "NAME")]
    buckets: Vec<Bucket>,
    /// First minute, such as 2026-12-01T00:00:00Z
    #[arg(long, env = "PLIMSOLL_FROM", value_name = "TIME", value_parser = UnixSeconds::parse)]
    from: Option<UnixSeconds>,
    /// First minute that is left out
    #[arg(long, env = "PLIMSOLL_TO", value_name = "TIME", value_parser = UnixSeconds::parse)]
    to: Option<UnixSeconds>,
    /// Format of the output
    #[arg(long, short, value_enum, default_value_t, env = "PLIMSOLL_OUTPUT", value_name = "FORMAT")]
    output: ExportFormat,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ExportFormat {
    /// As `history import` and `simulate` read it
    #[default]
    Csv,
    /// For scripts: one JSON object for each row, on a line of its own
    Json,
}

/// One row of an export, in the form that scripts read.
#[derive(Debug, Serialize)]
struct Row<'a> {
    time_utc: &'a str,
    bucket: &'a str,
    offered_rps: f64,
    clean: bool,
}

pub(super) async fn run(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let mut query: Vec<String> = Vec::new();
    if !args.buckets.is_empty() {
        // Bucket names have no character that a query must escape.
        let names: Vec<&str> = args.buckets.iter().map(Bucket::as_str).collect();
        query.push(format!("buckets={}", names.join(",")));
    }
    query.extend(args.from.map(|from| format!("from={from}")));
    query.extend(args.to.map(|to| format!("to={to}")));
    let request = Request::get(format!("/history?{}", query.join("&")));
    let mut response = args.controller.open(&request).await?;
    let mut out = output::stdout();
    let mut partial_line = Vec::new();
    let mut lines = 0_u64;
    while let Some(chunk) = response.chunk().await.context("the controller closed the connection")? {
        match args.output {
            ExportFormat::Csv => out.write_all(&chunk)?,
            ExportFormat::Json => {
                partial_line.extend_from_slice(&chunk);
                while let Some(end) = partial_line.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = partial_line.drain(..=end).collect();
                    lines += 1;
                    // The first line is the header.
                    if lines > 1 {
                        write_json(&mut out, std::str::from_utf8(&line)?.trim_end())?;
                    }
                }
            }
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn write_json(out: &mut dyn Write, line: &str) -> anyhow::Result<()> {
    let cells: Vec<&str> = line.split(',').collect();
    let [time_utc, bucket, offered, clean] = cells[..] else {
        bail!("the controller sent {line:?}, which is not a row of time_utc,bucket,offered_rps,clean");
    };
    json_line(out, &Row { time_utc, bucket, offered_rps: offered.parse()?, clean: clean == "true" })
}
