//! The command line, and the exit codes of the commands.

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use plimsoll_host::descriptors;
use tokio_util::sync::CancellationToken;

use crate::admin_client::{AdminArgs, AdminError, apply_context};
use crate::cmd::check::schema;
use crate::cmd::credentials::{certs, context, tokens};
use crate::cmd::records::{audit, events};
use crate::cmd::state::history;
use crate::cmd::status::{doctor, top, why};
use crate::cmd::{
    Unusable, apply, check, kill, quota, rollout, service, simulate, state, status, unusable,
};
use crate::logging::{self, LogFormat};
use crate::{completion, load, output, shutdown, up};

/// Exit code for invalid arguments or input: the same command fails again.
const EXIT_USAGE: u8 = 2;
/// Exit code for a command that failed for another reason.
const EXIT_FAILURE: u8 = 1;

const AFTER_HELP: &str = "\
Commands for operators take the address of the controller, its CA and a token from flags or from the environment: \
PLIMSOLL_CONTROLLER_ADMIN, PLIMSOLL_CA and PLIMSOLL_TOKEN_FILE; or all three from a named fleet, see `plimsoll context`.";

/// Distributed load shedding for service fleets: each instance drops the excess itself, without a network
/// call per request
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, propagate_version = true, max_term_width = 100, after_help = AFTER_HELP)]
pub(crate) struct Plimsoll {
    /// Log level: error, warn, info, debug or trace, or a filter such as plimsoll_client=debug
    #[arg(
        long,
        global = true,
        env = "PLIMSOLL_LOG",
        value_name = "FILTER",
        help_heading = "Logging"
    )]
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
    Quota(quota::QuotaArgs),
    /// Run the demo service: HTTP behind the middleware
    Service(service::Args),
    Load(load::Args),
    /// Show whether the fleet is healthy, what is wrong with its remedy, and the buckets that refuse
    ///
    /// Buckets that refuse are first, with the share of requests that each reason refused, by counts. `law` is the share that
    /// the control law means to refuse now, without guards and quotas; in shadow, as `would refuse`, it is not carried out.
    ///
    /// Exit code 0: no problem; 1: there is a problem, or no controller answers; 2: invalid arguments. A bucket that refuses is
    /// no problem, and --tenant shows no problems.
    Status(status::StatusArgs),
    Top(top::TopArgs),
    Doctor(doctor::DoctorArgs),
    Why(why::WhyArgs),
    Events(events::EventsArgs),
    #[command(subcommand)]
    Kill(kill::KillCommand),
    Check(check::CheckArgs),
    Schema(schema::SchemaArgs),
    #[command(subcommand)]
    History(history::HistoryCommand),
    #[command(subcommand)]
    Rollout(rollout::RolloutCommand),
    Diff(apply::DiffArgs),
    Apply(apply::ApplyArgs),
    Undo(apply::UndoArgs),
    Forget(status::ForgetArgs),
    /// Hand the lead over to another controller of several, for maintenance
    ///
    /// The leader stands by for 10 s at least, so that another one is elected. Exit code 0: handed over; 1: no controller
    /// leads, or no other one is registered.
    Resign(AdminArgs),
    /// Acknowledge that the controller has lost its state, or runs on an older one
    ///
    /// It ends the warning in status, metrics and alerts, and changes no stage and no kill: compare them before with what
    /// should be enforced. Exit code 0: acknowledged, or nothing was lost; 1: no controller answers.
    AcknowledgeLoss(AdminArgs),
    #[command(subcommand)]
    State(state::StateCommand),
    Simulate(simulate::SimulateArgs),
    #[command(subcommand)]
    Certs(certs::CertsCommand),
    #[command(subcommand)]
    Tokens(tokens::TokensCommand),
    #[command(subcommand)]
    Context(context::ContextCommand),
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    Completion(completion::CompletionArgs),
}

impl Plimsoll {
    /// Reads the arguments, and the context of an operator where they leave something out.
    ///
    /// # Errors
    /// The exit code, once the reason is printed.
    pub(crate) fn read() -> Result<Self, ExitCode> {
        let given = Self::command().get_matches();
        let in_context = apply_context(Self::command(), &given)
            .map_err(|reason| complain(EXIT_USAGE, &unusable(reason)))?;
        let matches = in_context.map_or(given, clap::Command::get_matches);
        Self::from_arg_matches(&matches).map_err(|error| error.exit())
    }

    pub(crate) fn run(self) -> ExitCode {
        let default = match &self.command {
            // The log of the quota server's database matters only if it fails.
            Command::Controller(_)
            | Command::Aggregator(_)
            | Command::Sidecar(_)
            | Command::Service(_)
            | Command::Quota(quota::QuotaArgs { command: None, .. }) => {
                "info,fjall=warn,lsm_tree=warn"
            }
            // The command prints what a tier would log.
            Command::Certs(_) => "warn,plimsoll_tls=off",
            _ => "warn",
        };
        if let Err(error) = logging::start(self.log.as_deref().unwrap_or(default), self.log_format)
        {
            return complain(EXIT_USAGE, &error);
        }
        let done = match self.command {
            Command::Check(args) => check::run(&args),
            Command::Schema(args) => schema::run(&args),
            Command::Completion(args) => completion::run(&args, Self::command()),
            Command::History(command) => history::run(&command),
            Command::Rollout(command) => rollout::run(&command),
            Command::Diff(args) => apply::diff(&args),
            Command::Apply(args) => apply::run(&args),
            Command::Undo(args) => apply::undo(&args),
            Command::Status(args) => status::run(&args),
            Command::Doctor(args) => doctor::run(&args),
            Command::Top(args) => top::run(args),
            Command::Why(args) => why::run(&args),
            Command::Events(args) => events::run(&args),
            Command::Certs(command) => certs::run(&command),
            Command::Context(command) => context::run(&command),
            Command::Tokens(command) => tokens::run(&command),
            Command::Audit(command) => audit::run(&command),
            Command::AcknowledgeLoss(admin) => status::acknowledge_loss(&admin),
            Command::Forget(args) => status::forget(&args),
            Command::Resign(admin) => status::resign(&admin),
            Command::State(command) => state::run(&command),
            Command::Kill(command) => kill::run(&command),
            Command::Simulate(args) => simulate::run(&args),
            Command::Quota(quota::QuotaArgs {
                command: Some(command),
                ..
            }) => quota::run(&command),
            Command::Quota(args) => {
                until_done(|shutdown| plimsoll_quota::run(args.server, shutdown))
            }
            Command::Up(args) => until_done(|shutdown| up::run(args, shutdown)),
            Command::Load(args) => until_done(|shutdown| load::run(args, shutdown)),
            Command::Sidecar(args) => until_done(|shutdown| plimsoll_sidecar::run(args, shutdown)),
            Command::Service(args) => until_done(|shutdown| service::run(args, shutdown)),
            Command::Controller(args) => {
                until_done(|shutdown| plimsoll_controller::run(args, shutdown))
            }
            Command::Aggregator(args) => {
                until_done(|shutdown| plimsoll_aggregator::run(args, shutdown))
            }
        };
        done.unwrap_or_else(|error| {
            complain(
                if is_usage(&error) {
                    EXIT_USAGE
                } else {
                    EXIT_FAILURE
                },
                &error,
            )
        })
    }
}

/// Runs a command on a separate runtime, with a token that the first signal cancels.
fn until_done<F, E>(run: impl FnOnce(CancellationToken) -> F) -> anyhow::Result<ExitCode>
where
    F: Future<Output = Result<(), E>>,
    E: Into<anyhow::Error>,
{
    // Each connection takes a descriptor.
    match descriptors::raise() {
        Ok(raised) => {
            let (inherited, limit, children) = (raised.inherited, raised.limit, raised.children());
            tracing::info!(inherited, limit, children, "limit of open files raised");
        }
        Err(error) => tracing::warn!(%error, "limit of open files stays as it is"),
    }
    shutdown::run_until_signal(run).map(|()| ExitCode::SUCCESS)
}

/// Returns true if the arguments or their files are at fault, so that the same command fails again.
fn is_usage(error: &anyhow::Error) -> bool {
    use plimsoll_controller::Error;
    error.downcast_ref::<Error>().is_some_and(|error| {
        matches!(
            error,
            Error::Policy(_) | Error::Security(_) | Error::StoreArgs(_) | Error::Events(_)
        )
    }) || error
        .downcast_ref::<plimsoll_aggregator::Error>()
        .is_some_and(plimsoll_aggregator::Error::is_usage)
        || error
            .downcast_ref::<plimsoll_sidecar::Error>()
            .is_some_and(plimsoll_sidecar::Error::is_usage)
        || error
            .downcast_ref::<plimsoll_quota::Error>()
            .is_some_and(plimsoll_quota::Error::is_usage)
        || error
            .downcast_ref::<AdminError>()
            .is_some_and(AdminError::is_usage)
        || error.is::<Unusable>()
        || error.is::<plimsoll_client::BuildError>()
        || error.is::<plimsoll_tower::RulesError>()
}

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
