//! Logs go to standard error, so that standard output is a command's answer and nothing else.

use anyhow::Context;
use clap::ValueEnum;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging by `filter`.
pub(crate) fn start(filter: &str, format: Format) -> anyhow::Result<()> {
    let filter = EnvFilter::builder()
        .parse(filter)
        .with_context(|| format!("--log {filter}: try error, warn, info, debug, trace, or TARGET=LEVEL"))?;
    let colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    match format {
        Format::Text => log.init(),
        Format::Json => log.json().init(),
    }
    Ok(())
}
