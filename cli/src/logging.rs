//! Logging to standard error: standard output carries the answer of a command and nothing else.

use anyhow::Context;
use clap::ValueEnum;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

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
    let filter = EnvFilter::builder().parse(filter).with_context(|| {
        format!("invalid --log {filter}: give error, warn, info, debug, trace, or TARGET=LEVEL")
    })?;
    let colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}
