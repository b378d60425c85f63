//! `plimsoll kill`: the kill switch for the whole fleet or for one bucket, and a drill that measures how fast
//! a kill spreads.

mod answers;

pub(crate) use answers::write_claims;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use plimsoll_admin::kill_api::{
    self, DRILL_MAX_MS, DrillOrder, DrillReport, KillEnded, KillOff, KillOn, KillStatus, TTL_MAX_S,
};
use plimsoll_core::names::{Bucket, Text};

use crate::admin_client::{
    Address, AdminError, Answer, Operator, OperatorArgs, Request, parse_aggregator, parse_controller,
    send_to_first_reachable,
};
use crate::output::OutputArgs;
use crate::shutdown;

/// The hint of a request that neither a controller nor an aggregator answers.
const UNREACHABLE: &str = "if the controller is down, kill one zone at its aggregator: --aggregator URL, its admin port \
                           (7411); or stop one service by its kill file (--kill-file)";

/// Stop enforcement at once, end a kill, or show what is killed
///
/// A kill goes to the controller and stops enforcement in the whole fleet; while no controller runs, it goes
/// to the aggregator of a zone and stops that zone. Exit code 0: done; 1: refused, no tier answers, a drill is
/// incomplete, or `kill off` leaves something killed; 2: invalid arguments, or a bucket that is not known.
#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    #[command(subcommand)]
    command: KillCommand,
}

#[derive(Debug, Subcommand)]
enum KillCommand {
    /// Stop enforcement: clients refuse nothing and only observe, in the whole fleet or for one bucket
    On {
        /// Reason in a few words; `kill status` shows it
        #[arg(long, env = "PLIMSOLL_REASON", value_name = "TEXT", value_parser = Text::new)]
        reason: Text,
        /// Kill only this bucket, not the whole fleet
        #[arg(long, env = "PLIMSOLL_BUCKET", value_name = "NAME")]
        bucket: Option<Bucket>,
        /// End the kill after this time, such as 10m; its buckets stay in shadow. Controllers only
        #[arg(long, env = "PLIMSOLL_TTL", value_name = "TIME", value_parser = parse_ttl)]
        ttl: Option<Duration>,
        #[command(flatten)]
        tiers: TierArgs,
    },
    /// End a kill; its buckets stay in shadow until an operator promotes them again
    Off {
        /// Reason, for the log
        #[arg(long, env = "PLIMSOLL_REASON", value_name = "TEXT", value_parser = Text::new)]
        reason: Option<Text>,
        /// The bucket to end the kill of; without it, the kill of the whole fleet ends
        #[arg(long, env = "PLIMSOLL_BUCKET", value_name = "NAME")]
        bucket: Option<Bucket>,
        #[command(flatten)]
        tiers: TierArgs,
    },
    /// Show what is killed, since when and why
    Status {
        #[command(flatten)]
        tiers: TierArgs,
    },
    /// Measure how long a kill takes to reach every client; enforcement continues
    Drill {
        /// Time to wait for the acknowledgements of clients
        #[arg(long, env = "PLIMSOLL_TIMEOUT", value_name = "TIME", default_value = "10s", value_parser = parse_wait)]
        timeout: Duration,
        #[command(flatten)]
        tiers: TierArgs,
    },
}

/// The tiers to try in order, and the format of the output.
#[derive(Debug, Args)]
struct TierArgs {
    /// Admin port of the controller; unless an aggregator is given, that of the config file, else
    /// http://127.0.0.1:7401
    #[arg(long, env = "PLIMSOLL_CONTROLLER_ADMIN", value_name = "URL", value_hint = ValueHint::Url, value_parser = parse_controller)]
    controller: Option<Address>,
    /// Admin port (7411) of an aggregator, for while no controller runs; with --controller, tried if that one
    /// does not answer
    #[arg(long, env = "PLIMSOLL_AGGREGATOR_ADMIN", value_name = "URL", value_hint = ValueHint::Url, value_parser = parse_aggregator)]
    aggregator: Option<Address>,
    #[command(flatten)]
    operator: OperatorArgs,
    #[command(flatten)]
    output: OutputArgs,
}

fn parse_ttl(text: &str) -> Result<Duration, String> {
    let ttl = humantime::parse_duration(text).map_err(|error| format!("{error}; write it as 10m or 2h"))?;
    if ttl < Duration::from_secs(1) || ttl.as_secs() > TTL_MAX_S || ttl.subsec_nanos() > 0 {
        return Err(
            "give whole seconds from 1s to 366d; without --ttl the kill holds until `kill off`".to_owned()
        );
    }
    Ok(ttl)
}

fn parse_wait(text: &str) -> Result<Duration, String> {
    let wait = humantime::parse_duration(text).map_err(|error| format!("{error}; write it as 10s"))?;
    let ms = Duration::from_millis(1)..=Duration::from_millis(DRILL_MAX_MS);
    if ms.contains(&wait) { Ok(wait) } else { Err(format!("give 1ms to {}s", DRILL_MAX_MS / 1_000)) }
}

/// The name of the operator from the environment. It is recorded for a caller on loopback without a token; a token has a
/// name of its own.
fn operator() -> Option<Text> {
    let named = |name: &str| std::env::var(name).ok().and_then(|user| Text::new(&user).ok());
    named("SUDO_USER").or_else(|| named("USER")).or_else(|| named("LOGNAME"))
}

impl TierArgs {
    /// The addresses in the order in which they are tried. The controller of the config file is left out if an
    /// aggregator is given: a kill of one zone must not become one of the fleet.
    fn addresses(&self, operator: &Operator) -> Result<Vec<Address>, String> {
        let controller = match (&self.controller, &self.aggregator) {
            (None, None) => Some(operator.controller()?),
            (controller, _) => controller.clone(),
        };
        Ok(controller.into_iter().chain(self.aggregator.clone()).collect())
    }

    async fn send<T: serde::de::DeserializeOwned>(&self, request: &Request) -> Result<Answer<T>, AdminError> {
        let operator = self.operator.open().map_err(AdminError::Unsent)?;
        let addresses = self.addresses(&operator).map_err(AdminError::Unsent)?;
        send_to_first_reachable(&operator, &addresses, request, UNREACHABLE).await
    }
}

/// Runs the command. The exit code is 0 on success, and 1 after a drill that is incomplete or an end that
/// leaves something killed.
///
/// # Errors
/// No tier answers, the tier refuses, or the answer cannot be printed.
pub(crate) fn run(args: KillArgs) -> anyhow::Result<ExitCode> {
    shutdown::runtime()?.block_on(async {
        match args.command {
            KillCommand::On { reason, bucket, ttl, tiers } => {
                let ttl_s = ttl.map(|ttl| ttl.as_secs());
                let order = KillOn { reason, bucket: bucket.clone(), ttl_s, by: operator() };
                let answer: Answer<KillStatus> = tiers.send(&Request::post(kill_api::ON, &order)?).await?;
                tiers.output.print(&answer.body, |out| answers::write_on(out, &answer, bucket.as_ref()))?;
            }
            KillCommand::Off { reason, bucket, tiers } => {
                let order = KillOff { bucket: bucket.clone(), reason, by: operator() };
                let answer: Answer<KillEnded> = tiers.send(&Request::post(kill_api::OFF, &order)?).await?;
                tiers.output.print(&answer.body, |out| answers::write_off(out, &answer, bucket.as_ref()))?;
                if !answers::has_ended(&answer.body.status, bucket.as_ref()) {
                    return Ok(ExitCode::FAILURE);
                }
            }
            KillCommand::Status { tiers } => {
                let answer: Answer<KillStatus> = tiers.send(&Request::get(kill_api::STATUS)).await?;
                tiers.output.print(&answer.body, |out| answers::write_status(out, &answer.body))?;
            }
            KillCommand::Drill { timeout, tiers } => {
                let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(DRILL_MAX_MS);
                let request = Request::post(kill_api::DRILL, &DrillOrder { timeout_ms })?.lasting(timeout);
                let Answer { body: drilled, .. }: Answer<DrillReport> = tiers.send(&request).await?;
                tiers.output.print(&drilled, |out| answers::write_drill(out, &drilled))?;
                return Ok(if drilled.complete { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}
