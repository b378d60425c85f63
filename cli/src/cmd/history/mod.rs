//! `plimsoll history`: exports the traffic history of a controller as CSV, or imports one.

mod export;
mod import;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::shutdown;

/// Export the traffic history of a controller, or import one
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    #[command(subcommand)]
    command: HistoryCommand,
}

#[derive(Debug, Subcommand)]
enum HistoryCommand {
    /// Write the requests/s offered to each bucket, minute by minute, to standard output
    Export(export::ExportArgs),
    /// Import past days, so that limits can be learned from them
    Import(import::ImportArgs),
}

/// Runs the command.
///
/// # Errors
/// The controller refuses or cannot be reached, or a file cannot be read or written.
pub(crate) fn run(args: &HistoryArgs) -> anyhow::Result<ExitCode> {
    let runtime = shutdown::runtime()?;
    match &args.command {
        HistoryCommand::Export(args) => runtime.block_on(export::run(args)),
        HistoryCommand::Import(args) => runtime.block_on(import::run(args)),
    }
}
