//! Logging to standard error: standard output carries the answer of a command and nothing else.

use anyhow::Context;
use clap::ValueEnum;
use std::io::IsTerminal;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

use crate::output::Pipe;

/// The format of the log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// One JSON object for each line
    Json,
}

/// Starts logging with `filter`.
///
/// # Errors
/// The filter is invalid.
pub(crate) fn start(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let invalid = || format!("invalid --log {filter}: give error, warn, info, debug, trace, or TARGET=LEVEL");
    // A span or a field would pass as the name of a target, and match nothing.
    anyhow::ensure!(!filter.contains('['), invalid());
    let filter: Targets = filter.parse().with_context(invalid)?;
    let colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = fmt::layer().with_writer(|| Pipe(std::io::stderr())).with_ansi(colours);
    let log = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Text => log.with(lines).init(),
        LogFormat::Json => log.with(lines.json()).init(),
    }
    Ok(())
}
