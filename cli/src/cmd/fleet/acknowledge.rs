//! `plimsoll acknowledge-loss`: ends the warning that the controller has lost its state.

use std::process::ExitCode;

use clap::Args;
use plimsoll_controller::admin::state_routes::{ACKNOWLEDGE_LOSS, Acknowledged};

use crate::admin_client::AdminArgs;

/// Acknowledge that the controller has lost its state, or runs on an older one
///
/// It ends the warning in status, metrics and alerts, and changes no stage and no kill: compare them before with what
/// should be enforced. Exit code 0: acknowledged, or nothing was lost; 1: no controller answers.
#[derive(Debug, Args)]
pub(crate) struct AcknowledgeArgs {
    #[command(flatten)]
    admin: AdminArgs,
}

/// Runs the command.
///
/// # Errors
/// The controller cannot be reached, or its answer cannot be printed.
pub(crate) fn run(args: &AcknowledgeArgs) -> anyhow::Result<ExitCode> {
    let acknowledged: Acknowledged = args.admin.post(ACKNOWLEDGE_LOSS, &())?;
    args.admin.output.print(&acknowledged, |out| {
        match &acknowledged.loss {
            Some(loss) => writeln!(out, "acknowledged: {loss}")?,
            None => writeln!(out, "nothing to acknowledge: the state was not lost")?,
        }
        if !acknowledged.saved {
            writeln!(out, "warning: the controller could not save this to its disk; see its log")?;
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}
