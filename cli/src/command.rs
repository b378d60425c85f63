//! The commands, and how each one ends.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio_util::sync::CancellationToken;

use crate::ask::AskError;
use crate::logging::{self, Format};
use crate::{apply, check, history, kill, load, rollout, service, shutdown, simulate, streams, up};

/// What a command that was asked for something impossible exits with.
const USAGE: u8 = 2;

/// Overload protection for service fleets: refuses the excess at the edge, with no network call on the request path
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Plimsoll {
    /// What to log: error, warn, info, debug or trace, or a filter such as plimsoll_client=debug
    #[arg(long, global = true, env = "PLIMSOLL_LOG", value_name = "FILTER", help_heading = "Logging")]
    log: Option<String>,
    /// How log lines look on standard error
    #[arg(
        long,
        global = true,
        env = "PLIMSOLL_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text",
        help_heading = "Logging"
    )]
    log_format: Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run everything in one process: controller, two zones, demo services and load
    Up(up::Args),
    /// Run a controller: turns reports and policy into directives
    Controller(plimsoll_controller::Args),
    /// Run an aggregator: merges the counts of a zone and passes directives down
    Aggregator(plimsoll_aggregator::Args),
    /// Run the demo service: HTTP behind the middleware
    Service(service::Args),
    /// Send open-loop HTTP load, for measurements
    #[command(hide = true)]
    Load(load::Args),
    /// Open many client streams to aggregators, for measurements
    #[command(hide = true)]
    Streams(streams::Args),
    /// Stop enforcement at once, or say what is stopped
    Kill(kill::KillArgs),
    /// Say what is wrong with policy files, and where
    Check(check::CheckArgs),
    /// Take the history of traffic out of a controller, or bring one in
    History(history::HistoryArgs),
    /// Say in which stage every bucket is, promote it, or return it to shadow
    Rollout(rollout::RolloutArgs),
    /// Show in what a policy that is held back differs from the one in force
    Diff(apply::DiffArgs),
    /// Release a policy that the controller holds back because it changes very much
    Apply(apply::ApplyArgs),
    /// Try a policy against scripted traffic and faults, under a virtual clock
    Simulate(simulate::SimulateArgs),
}

impl Plimsoll {
    /// Runs the command to its end.
    pub(crate) fn run(self) -> ExitCode {
        let quiet = matches!(
            self.command,
            Command::Up(_)
                | Command::Check(_)
                | Command::History(_)
                | Command::Rollout(_)
                | Command::Diff(_)
                | Command::Apply(_)
                | Command::Kill(_)
                | Command::Load(_)
                | Command::Streams(_)
                | Command::Simulate(_)
        );
        // What the database of the history does is of no interest as long as it works.
        let default = if quiet { "warn" } else { "info,fjall=warn,lsm_tree=warn" };
        if let Err(error) = logging::start(self.log.as_deref().unwrap_or(default), self.log_format) {
            return complain(USAGE, &error);
        }
        match self.command {
            Command::Check(args) => check::run(&args).unwrap_or_else(|error| complain(USAGE, &error)),
            Command::History(args) => history::run(&args).unwrap_or_else(failed),
            Command::Rollout(args) => rollout::run(&args).unwrap_or_else(failed),
            Command::Diff(args) => apply::diff(&args).unwrap_or_else(failed),
            Command::Apply(args) => apply::run(&args).unwrap_or_else(failed),
            Command::Kill(args) => kill::run(args).unwrap_or_else(failed),
            Command::Simulate(args) => simulate::run(&args).unwrap_or_else(|error| complain(1, &error)),
            Command::Up(args) => until_done(|shutdown| up::run(args, shutdown)),
            Command::Load(args) => until_done(|shutdown| load::run(args, shutdown)),
            Command::Streams(args) => until_done(|shutdown| streams::run(args, shutdown)),
            Command::Service(args) => until_done(|shutdown| service::run(args, shutdown)),
            Command::Controller(args) => until_done(async |shutdown| {
                plimsoll_controller::run(args, shutdown).await.map_err(anyhow::Error::from)
            }),
            Command::Aggregator(args) => until_done(async |shutdown| {
                plimsoll_aggregator::run(args, shutdown).await.map_err(anyhow::Error::from)
            }),
        }
    }
}

/// Runs a command on a runtime of its own, with a token that is cancelled by Ctrl-C and by SIGTERM.
fn until_done<F>(run: impl FnOnce(CancellationToken) -> F) -> ExitCode
where
    F: Future<Output = anyhow::Result<()>>,
{
    let done = shutdown::runtime().and_then(|runtime| {
        runtime.block_on(async {
            let shutdown = shutdown::on_signal()?;
            run(shutdown).await
        })
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(error),
    }
}

/// Whether what was asked for is at fault, so that asking again will not do.
fn is_usage(error: &anyhow::Error) -> bool {
    use plimsoll_controller::Error;
    error.downcast_ref::<Error>().is_some_and(|error| matches!(error, Error::Policy(_)))
        || error
            .downcast_ref::<plimsoll_aggregator::Error>()
            .is_some_and(plimsoll_aggregator::Error::is_usage)
        || error.downcast_ref::<AskError>().is_some_and(AskError::is_usage)
        || error.is::<streams::TooFewFiles>()
        || error.is::<plimsoll_client::SettingsError>()
        || error.is::<plimsoll_client::middleware::RulesError>()
}

/// Says why a command failed.
fn failed(error: anyhow::Error) -> ExitCode {
    complain(if is_usage(&error) { USAGE } else { 1 }, &error)
}

fn complain(code: u8, error: &anyhow::Error) -> ExitCode {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Many errors name their cause themselves; it need not be said twice.
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    eprintln!("error: {text}");
    ExitCode::from(code)
}
