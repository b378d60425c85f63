//! The command line, and the exit codes of the commands.

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use plimsoll_host::descriptors;
use tokio_util::sync::CancellationToken;

use crate::admin_client::AdminError;
use crate::cmd::credentials::{self, certs, tokens};
use crate::cmd::fleet::{acknowledge, forget, status};
use crate::cmd::quota::{QuotaArgs, operator};
use crate::cmd::{apply, audit, check, history, kill, rollout, service, simulate};
use crate::logging::{self, LogFormat};
use crate::{load, output, shutdown, up};

/// The exit code for invalid arguments or input: the same command fails again.
const EXIT_USAGE: u8 = 2;
/// The exit code for a command that failed for another reason.
const EXIT_FAILURE: u8 = 1;

const AFTER_HELP: &str = "\
Commands for operators take the address of the controller, its CA and a token from flags, from the environment, or \
from ~/.config/plimsoll/config.yaml with the keys controller, ca and token_file.";

/// Distributed load shedding for service fleets: each instance drops the excess itself, without a network
/// call per request
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, propagate_version = true, max_term_width = 100, after_help = AFTER_HELP)]
pub(crate) struct Plimsoll {
    /// Log level: error, warn, info, debug or trace, or a filter such as plimsoll_client=debug
    #[arg(long, global = true, env = "PLIMSOLL_LOG", value_name = "FILTER", help_heading = "Logging")]
    log: Option<String>,
    /// Format of the log lines on standard error
    #[arg(
        long,
        global = true,
        env = "PLIMSOLL_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text",
        help_heading = "Logging"
    )]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

// Without a comment here, the help of a command comes from its arguments.
#[derive(Debug, Subcommand)]
enum Command {
    /// Run a demo in one process: controller, two zones, services and load
    Up(up::Args),
    /// Run a controller, which turns reports and policy into directives
    Controller(plimsoll_controller::Args),
    /// Run an aggregator, which merges the reports of a zone and passes directives down
    Aggregator(plimsoll_aggregator::Args),
    /// Run a sidecar, which decides for proxies and for services that cannot embed the client
    Sidecar(plimsoll_sidecar::Args),
    Quota(QuotaArgs),
    /// Run the demo service: HTTP behind the middleware
    Service(service::Args),
    Load(load::Args),
    Status(status::StatusArgs),
    Kill(kill::KillArgs),
    Check(check::CheckArgs),
    History(history::HistoryArgs),
    Rollout(rollout::RolloutArgs),
    Diff(apply::DiffArgs),
    Apply(apply::ApplyArgs),
    Forget(forget::ForgetArgs),
    AcknowledgeLoss(acknowledge::AcknowledgeArgs),
    Simulate(simulate::SimulateArgs),
    Certs(certs::CertsArgs),
    Tokens(tokens::TokensArgs),
    Audit(audit::AuditArgs),
}

impl Plimsoll {
    /// Runs the command to its end.
    pub(crate) fn run(self) -> ExitCode {
        let is_tier = match &self.command {
            Command::Controller(_) | Command::Aggregator(_) | Command::Sidecar(_) | Command::Service(_) => {
                true
            }
            Command::Quota(args) => args.command.is_none(),
            _ => false,
        };
        // The log of the database of a quota server is of interest only if it fails.
        let default = match self.command {
            _ if is_tier => "info,fjall=warn,lsm_tree=warn",
            // The command prints what a tier would log.
            Command::Certs(_) => "warn,plimsoll_tls=off",
            _ => "warn",
        };
        if let Err(error) = logging::start(self.log.as_deref().unwrap_or(default), self.log_format) {
            return complain(EXIT_USAGE, &error);
        }
        match self.command {
            Command::Check(args) => check::run(&args).unwrap_or_else(|error| complain(EXIT_USAGE, &error)),
            Command::History(args) => history::run(&args).unwrap_or_else(failed),
            Command::Rollout(args) => rollout::run(&args).unwrap_or_else(failed),
            Command::Diff(args) => apply::diff(&args).unwrap_or_else(failed),
            Command::Apply(args) => apply::run(&args).unwrap_or_else(failed),
            Command::Status(args) => status::run(&args).unwrap_or_else(failed),
            Command::Certs(args) => certs::run(&args).unwrap_or_else(failed),
            Command::Tokens(args) => tokens::run(&args).unwrap_or_else(failed),
            Command::Audit(args) => audit::run(&args).unwrap_or_else(failed),
            Command::AcknowledgeLoss(args) => acknowledge::run(&args).unwrap_or_else(failed),
            Command::Forget(args) => forget::run(&args).unwrap_or_else(failed),
            Command::Kill(args) => kill::run(args).unwrap_or_else(failed),
            Command::Simulate(args) => {
                simulate::run(&args).unwrap_or_else(|error| complain(EXIT_FAILURE, &error))
            }
            Command::Up(args) => until_done(|shutdown| up::run(args, shutdown)),
            Command::Load(args) => until_done(|shutdown| load::run(args, shutdown)),
            Command::Sidecar(args) => until_done(|shutdown| plimsoll_sidecar::run(args, shutdown)),
            Command::Quota(QuotaArgs { command: Some(command), .. }) => {
                operator::run(&command).unwrap_or_else(failed)
            }
            Command::Quota(QuotaArgs { command: None, server }) => {
                until_done(|shutdown| plimsoll_quota::run(server, shutdown))
            }
            Command::Service(args) => until_done(|shutdown| service::run(args, shutdown)),
            Command::Controller(args) => until_done(|shutdown| plimsoll_controller::run(args, shutdown)),
            Command::Aggregator(args) => until_done(|shutdown| plimsoll_aggregator::run(args, shutdown)),
        }
    }
}

/// Runs a command on its own runtime, with a token that Ctrl-C and SIGTERM cancel.
fn until_done<F, E>(run: impl FnOnce(CancellationToken) -> F) -> ExitCode
where
    F: Future<Output = Result<(), E>>,
    E: Into<anyhow::Error>,
{
    raise_descriptors();
    shutdown::run_until_signal(run).map_or_else(failed, |()| ExitCode::SUCCESS)
}

/// Raises the limit of descriptors, because each connection takes one.
fn raise_descriptors() {
    match descriptors::raise() {
        Ok(raised) => {
            let (inherited, limit, children) = (raised.inherited, raised.limit, raised.children());
            tracing::info!(inherited, limit, children, "limit of open files raised");
        }
        Err(error) => tracing::warn!(%error, "limit of open files stays as it is"),
    }
}

/// Returns true if the arguments or their files are at fault, so that the same command fails again.
fn is_usage(error: &anyhow::Error) -> bool {
    use plimsoll_controller::Error;
    error.downcast_ref::<Error>().is_some_and(|error| matches!(error, Error::Policy(_) | Error::Security(_)))
        || error
            .downcast_ref::<plimsoll_aggregator::Error>()
            .is_some_and(plimsoll_aggregator::Error::is_usage)
        || error.downcast_ref::<plimsoll_sidecar::Error>().is_some_and(plimsoll_sidecar::Error::is_usage)
        || error.downcast_ref::<plimsoll_quota::Error>().is_some_and(plimsoll_quota::Error::is_usage)
        || error.downcast_ref::<AdminError>().is_some_and(AdminError::is_usage)
        || error.is::<credentials::Unusable>()
        || error.is::<plimsoll_client::BuildError>()
        || error.is::<service::TrustError>()
        || error.is::<plimsoll_client::middleware::RulesError>()
}

fn failed(error: anyhow::Error) -> ExitCode {
    complain(if is_usage(&error) { EXIT_USAGE } else { EXIT_FAILURE }, &error)
}

/// Prints an error with its causes on standard error.
fn complain(code: u8, error: &anyhow::Error) -> ExitCode {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Many errors already name their cause.
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    // Without standard error, the exit code remains.
    let _ = writeln!(output::stderr(), "error: {text}");
    ExitCode::from(code)
}
