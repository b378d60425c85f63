//! `plimsoll forget`: removes an aggregator that is gone and does not return.

use std::process::ExitCode;

use clap::Args;
use plimsoll_controller::admin::aggregator_routes::{FORGET, Forget, Forgotten};

use crate::admin_client::AdminArgs;

/// Forget an aggregator that is gone and does not return
///
/// Its share is free at once, and status, metrics and alerts no longer show it. An aggregator that connects
/// again is known again. Exit code 0: forgotten; 1: it is connected, or no controller answers; 2: no
/// such aggregator is known.
#[derive(Debug, Args)]
pub(crate) struct ForgetArgs {
    /// Zone and name of the aggregator, as `plimsoll status` shows them
    #[arg(env = "PLIMSOLL_FORGET", value_name = "ZONE/NAME")]
    aggregator: String,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Runs the command.
///
/// # Errors
/// The controller refuses or cannot be reached, or its answer cannot be printed.
pub(crate) fn run(args: &ForgetArgs) -> anyhow::Result<ExitCode> {
    let forget = Forget { aggregator: args.aggregator.clone() };
    let forgotten: Forgotten = args.admin.post(FORGET, &forget)?;
    args.admin.output.print(&forgotten, |out| {
        writeln!(out, "forgotten: {}; its share of every limit is free", args.aggregator)?;
        if !forgotten.saved {
            writeln!(out, "warning: the controller could not save this to its disk; see its log")?;
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}
