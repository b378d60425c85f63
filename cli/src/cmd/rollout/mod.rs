//! `plimsoll rollout`: shows the rollout stage of each bucket with its gate, promotes or aborts it, and returns it to its
//! stage after a kill.

mod answers;
mod resume;

pub(crate) use resume::{plan, resume, write_plan};

use std::io::Write;
use std::process::ExitCode;

use clap::Subcommand;
use plimsoll_controller::admin::rollout_routes::{Abort, Done, EntryStatus, Promote, Reset};
use plimsoll_controller::state::Change;
use plimsoll_core::decision::Mode;
use plimsoll_core::names::Text;
use serde::Serialize;

use crate::admin_client::AdminArgs;
use crate::output;

/// Show the rollout stage of each bucket, promote it, return it to shadow, or resume it after a kill
///
/// Of several entries each is moved that can be. Exit code 0: done; 1: one is refused, or no controller answers; 2: invalid
/// arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum RolloutCommand {
    /// Show the stage, the gate and the evidence of each policy entry
    Status {
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Promote entries one stage, from shadow to canary or from canary to enforce, each if its gate passes
    Promote {
        /// Buckets or patterns, as written in the policy
        #[arg(env = "PLIMSOLL_BUCKET", value_name = "BUCKET", required = true)]
        buckets: Vec<String>,
        /// Stage to promote to, canary or enforce; the next one by default. Give --force to skip canary
        #[arg(long, env = "PLIMSOLL_TO", value_name = "STAGE", value_parser = parse_target)]
        to: Option<Mode>,
        /// Promote although the gate does not pass
        #[arg(long, env = "PLIMSOLL_FORCE", requires = "reason")]
        force: bool,
        /// Reason, kept in the history
        #[arg(long, env = "PLIMSOLL_REASON", value_name = "TEXT", value_parser = Text::new)]
        reason: Option<Text>,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Return entries to shadow at once. After a kill, it also keeps `resume` from returning them
    Abort {
        /// Buckets or patterns, as written in the policy
        #[arg(env = "PLIMSOLL_BUCKET", value_name = "BUCKET", required = true)]
        buckets: Vec<String>,
        /// Reason, kept in the history
        #[arg(long, env = "PLIMSOLL_REASON", value_name = "TEXT", value_parser = Text::new)]
        reason: Option<Text>,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Return entries after a kill to the stages that they had before it
    ///
    /// It first shows what each would refuse now in that stage, and changes nothing without --reason. An entry returns to no
    /// higher stage than its mode in the policy file, and only if its policy has not changed since the kill.
    Resume {
        /// Buckets or patterns, as written in the policy, or buckets that were killed without their pattern
        #[arg(
            env = "PLIMSOLL_BUCKET",
            value_name = "BUCKET",
            required_unless_present = "all"
        )]
        buckets: Vec<String>,
        /// Everything that a kill put in shadow
        #[arg(long, env = "PLIMSOLL_RESUME_ALL", conflicts_with = "buckets")]
        all: bool,
        /// Reason, kept in the history and the audit log. Without it nothing is resumed
        #[arg(long, env = "PLIMSOLL_RESUME_REASON", value_name = "TEXT", value_parser = Text::new)]
        reason: Option<Text>,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Begin the evidence of an entry anew, as after a change that the controller cannot see
    Reset {
        /// Bucket or pattern, as written in the policy
        #[arg(env = "PLIMSOLL_BUCKET")]
        bucket: String,
        /// Reason, kept in the history and the audit log
        #[arg(long, env = "PLIMSOLL_REASON", value_name = "TEXT", value_parser = Text::new)]
        reason: Text,
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
                if entries.is_empty() {
                    writeln!(out, "no entries: the policy has no buckets")?;
                }
                entries
                    .iter()
                    .try_for_each(|entry| answers::write_status(out, entry))
            })?;
        }
        RolloutCommand::Promote {
            buckets,
            to,
            force,
            reason,
            admin,
        } => each(buckets, admin, "/rollout/promote", |entry| Promote {
            entry,
            to: *to,
            force: reason.clone().filter(|_| *force),
            reason: reason.clone(),
        })?,
        RolloutCommand::Abort {
            buckets,
            reason,
            admin,
        } => each(buckets, admin, "/rollout/abort", |entry| Abort {
            entry,
            reason: reason.clone(),
        })?,
        RolloutCommand::Resume {
            buckets,
            all,
            reason,
            admin,
        } => return resume::run(buckets, *all, reason.as_ref(), admin),
        RolloutCommand::Reset {
            bucket,
            reason,
            admin,
        } => each(
            std::slice::from_ref(bucket),
            admin,
            "/rollout/reset",
            |entry| Reset {
                entry,
                reason: reason.clone(),
            },
        )?,
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

/// Sends a command for each entry, and prints the answer. An entry that is refused keeps none after it from its move.
///
/// # Errors
/// The last refusal; those before it are printed.
fn each<T: Serialize>(
    buckets: &[String],
    admin: &AdminArgs,
    route: &str,
    command: impl Fn(String) -> T,
) -> anyhow::Result<()> {
    let mut refused: Option<anyhow::Error> = None;
    for bucket in buckets {
        let done = admin.post::<Done>(route, &command(bucket.clone()));
        let printed = done.and_then(|done| {
            admin
                .output
                .print(&done, |out| answers::write_done(out, bucket, &done))
        });
        if let Err(error) = printed
            && let Some(earlier) = refused.replace(error)
        {
            writeln!(output::stderr(), "error: {earlier}")?;
        }
    }
    refused.map_or(Ok(()), Err)
}
