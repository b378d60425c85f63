//! `plimsoll rollout`: shows the rollout stage of each bucket with its gate, and promotes or aborts it.

mod answers;

use std::process::ExitCode;

use clap::Subcommand;
use plimsoll_controller::admin::rollout_routes::{Abort, Done, EntryStatus, Promote};
use plimsoll_controller::state::Change;
use plimsoll_core::decision::Mode;
use plimsoll_core::names::Text;

use crate::admin_client::AdminArgs;

/// Show the rollout stage of each bucket, promote it, or return it to shadow
///
/// Exit code 0: done; 1: refused, or no controller answers; 2: invalid arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum RolloutCommand {
    /// Show the stage, the gate and the evidence of each policy entry
    Status {
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Promote an entry one stage, from shadow to canary or from canary to enforce, if its gate passes
    Promote {
        /// Bucket or pattern, as written in the policy
        #[arg(env = "PLIMSOLL_BUCKET")]
        bucket: String,
        /// Stage to promote to, canary or enforce; the next one by default. Give --force to skip canary
        #[arg(long, env = "PLIMSOLL_TO", value_name = "STAGE", value_parser = parse_target)]
        to: Option<Mode>,
        /// Promote although the gate does not pass
        #[arg(long, env = "PLIMSOLL_FORCE", requires = "reason")]
        force: bool,
        /// Reason, kept in the history
        #[arg(long, env = "PLIMSOLL_FORCE_REASON", value_name = "TEXT", requires = "force", value_parser = Text::new)]
        reason: Option<Text>,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Return an entry to shadow at once
    Abort {
        /// Bucket or pattern, as written in the policy
        #[arg(env = "PLIMSOLL_BUCKET")]
        bucket: String,
        /// Reason, kept in the history
        #[arg(long, env = "PLIMSOLL_REASON", value_name = "TEXT", value_parser = Text::new)]
        reason: Option<Text>,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Show the stage changes with time, cause and evidence
    History {
        /// Only the changes of this bucket or pattern
        #[arg(env = "PLIMSOLL_BUCKET")]
        bucket: Option<String>,
        #[command(flatten)]
        admin: AdminArgs,
    },
}

fn parse_target(stage: &str) -> Result<Mode, String> {
    match stage {
        "canary" => Ok(Mode::Canary),
        "enforce" => Ok(Mode::Enforce),
        _ => Err("give canary or enforce; `plimsoll rollout abort` returns to shadow".to_owned()),
    }
}

pub(crate) fn run(command: &RolloutCommand) -> anyhow::Result<ExitCode> {
    match command {
        RolloutCommand::Status { admin } => {
            let entries: Vec<EntryStatus> = admin.get("/rollout")?;
            admin.output.print(&entries, |out| {
                entries
                    .iter()
                    .try_for_each(|entry| answers::write_status(out, entry))
            })?;
        }
        RolloutCommand::Promote {
            bucket,
            to,
            reason,
            admin,
            ..
        } => {
            let promote = Promote {
                entry: bucket.clone(),
                to: *to,
                force: reason.clone(),
            };
            let done: Done = admin.post("/rollout/promote", &promote)?;
            admin
                .output
                .print(&done, |out| answers::write_done(out, bucket, &done))?;
        }
        RolloutCommand::Abort {
            bucket,
            reason,
            admin,
        } => {
            let abort = Abort {
                entry: bucket.clone(),
                reason: reason.clone(),
            };
            let done: Done = admin.post("/rollout/abort", &abort)?;
            admin
                .output
                .print(&done, |out| answers::write_done(out, bucket, &done))?;
        }
        RolloutCommand::History { bucket, admin } => {
            let mut changes: Vec<Change> = admin.get("/rollout/history")?;
            changes.retain(|change| bucket.as_ref().is_none_or(|bucket| change.entry == *bucket));
            admin.output.print(&changes, |out| {
                changes
                    .iter()
                    .try_for_each(|change| answers::write_change(out, change))
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
