//! The commands that correct the controller's memory of a fleet.

use std::process::ExitCode;

use clap::Args;
use plimsoll_controller::admin::aggregator_routes::{FORGET, Forget, Forgotten};
use plimsoll_controller::admin::state_routes::{ACKNOWLEDGE_LOSS, Acknowledged};

use crate::admin_client::AdminArgs;
use crate::output::write_unless_saved;

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

pub(crate) fn forget(ForgetArgs { aggregator, admin }: &ForgetArgs) -> anyhow::Result<ExitCode> {
    let forgotten: Forgotten = admin.post(
        FORGET,
        &Forget {
            aggregator: aggregator.clone(),
        },
    )?;
    admin.output.report(&forgotten, |out| {
        writeln!(
            out,
            "forgotten: {aggregator}; its share of every limit is free"
        )?;
        write_unless_saved(out, forgotten.saved)
    })
}

pub(crate) fn acknowledge_loss(admin: &AdminArgs) -> anyhow::Result<ExitCode> {
    let acknowledged: Acknowledged = admin.post(ACKNOWLEDGE_LOSS, &())?;
    admin.output.report(&acknowledged, |out| {
        match &acknowledged.loss {
            Some(loss) => writeln!(out, "acknowledged: {loss}")?,
            None => writeln!(out, "nothing to acknowledge: the state was not lost")?,
        }
        write_unless_saved(out, acknowledged.saved)
    })
}
