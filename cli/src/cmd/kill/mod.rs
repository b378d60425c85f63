//! `plimsoll kill`: the kill switch for the whole fleet or for one bucket, and a drill that measures how fast
//! a kill spreads.

mod answers;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use plimsoll_admin::kill_api::{
    self, DRILL_MAX_MS, DrillOrder, DrillReport, KillEnded, KillOff, KillOn, KillStatus, TTL_MAX_S,
};
use plimsoll_core::names::{Bucket, Text};
use plimsoll_tls::Tier;

use crate::admin_client::{ANSWER_TIMEOUT, Address, AdminError, AdminPort, ControllerArgs};
use crate::cmd::{exit_code, parse_time, rollout};
use crate::output::OutputArgs;
use crate::shutdown;

/// Stop enforcement at once, end a kill, or show what is killed
///
/// A kill is sent to the controller and stops enforcement in the whole fleet; while no controller runs, it is sent
/// to the aggregator of a zone and stops that zone. Exit code 0: done; 1: refused, no tier answers, a drill is
/// incomplete, or `kill off` leaves something killed; 2: invalid arguments, or a bucket that is not known.
#[derive(Debug, Subcommand)]
pub(crate) enum KillCommand {
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
        tier: TierArgs,
    },
    /// End a kill; its buckets stay in shadow until an operator resumes or promotes them
    Off {
        /// Return what the kill put in shadow to the stages before it; see `plimsoll rollout resume`. Controllers only
        #[arg(
            long,
            env = "PLIMSOLL_KILL_RESUME",
            requires = "reason",
            conflicts_with = "aggregator"
        )]
        resume: bool,
        /// Reason, for the log
        #[arg(long, env = "PLIMSOLL_REASON", value_name = "TEXT", value_parser = Text::new)]
        reason: Option<Text>,
        /// The bucket to end the kill of; without it, the kill of the whole fleet ends
        #[arg(long, env = "PLIMSOLL_BUCKET", value_name = "NAME")]
        bucket: Option<Bucket>,
        #[command(flatten)]
        tier: TierArgs,
    },
    /// Show what is killed, since when and why
    Status {
        #[command(flatten)]
        tier: TierArgs,
    },
    /// Measure how long a kill takes to reach every client; enforcement continues
    Drill {
        /// Time to wait for the acknowledgements of clients
        #[arg(long, env = "PLIMSOLL_TIMEOUT", value_name = "TIME", default_value = "10s", value_parser = parse_wait)]
        timeout: Duration,
        #[command(flatten)]
        tier: TierArgs,
    },
}

/// The process to ask, and the format of the output.
#[derive(Debug, Args)]
pub(crate) struct TierArgs {
    #[command(flatten)]
    controller: ControllerArgs,
    /// Admin port (7411) of an aggregator to ask instead of a controller, for while none runs
    #[arg(long, env = "PLIMSOLL_AGGREGATOR_ADMIN", value_name = "URL", value_hint = ValueHint::Url, value_parser = |text: &str| Address::parse(text, Tier::Aggregator))]
    aggregator: Option<Address>,
    #[command(flatten)]
    output: OutputArgs,
}

impl TierArgs {
    fn port(&self) -> Result<AdminPort, AdminError> {
        self.port_or(ControllerArgs::port)
    }

    fn port_or(
        &self,
        of_controllers: fn(&ControllerArgs) -> Result<AdminPort, AdminError>,
    ) -> Result<AdminPort, AdminError> {
        match &self.aggregator {
            Some(address) => AdminPort::new(address, &self.controller.credentials),
            None => of_controllers(&self.controller),
        }
    }
}

fn parse_ttl(text: &str) -> Result<Duration, String> {
    parse_time(
        text,
        "10m or 2h",
        |ttl| (1..=TTL_MAX_S).contains(&ttl.as_secs()) && ttl.subsec_nanos() == 0,
        "give whole seconds from 1s to 366d; without --ttl the kill holds until `kill off`",
    )
}

fn parse_wait(text: &str) -> Result<Duration, String> {
    let fitting = Duration::from_millis(1)..=Duration::from_millis(DRILL_MAX_MS);
    let bounds = format!("give 1ms to {}s", DRILL_MAX_MS / 1_000);
    parse_time(text, "10s", |wait| fitting.contains(wait), &bounds)
}

/// Name of the operator from the environment. It is recorded for a caller on loopback without a
/// token; a token has its own name.
fn operator() -> Option<Text> {
    let names = ["SUDO_USER", "USER", "LOGNAME"].into_iter();
    names
        .filter_map(|name| std::env::var(name).ok())
        .find_map(|user| Text::new(&user).ok())
}

/// Runs the command. The exit code is 0 on success, and 1 after a drill that is incomplete or an
/// end that leaves something killed.
///
/// # Errors
/// The tier does not answer or refuses, or the answer cannot be printed.
pub(crate) fn run(command: &KillCommand) -> anyhow::Result<ExitCode> {
    let is_done = match command {
        KillCommand::On {
            reason,
            bucket,
            ttl,
            tier,
        } => {
            let ttl_s = ttl.map(|ttl| ttl.as_secs());
            // A controller that stands by takes it for the leader.
            let port = tier.port_or(ControllerArgs::any_port)?;
            let reason = reason.clone();
            let order = KillOn {
                reason,
                bucket: bucket.clone(),
                ttl_s,
                by: operator(),
            };
            let status: KillStatus = port.ask(port.post(kill_api::ON, &order)?)?;
            tier.output.print(&status, |out| {
                answers::write_on(out, &status, bucket.as_ref())
            })?;
            true
        }
        KillCommand::Off {
            resume,
            reason,
            bucket,
            tier,
        } => {
            let port = tier.port()?;
            let resumed_for = reason.as_ref().filter(|_| *resume);
            let returning = match resumed_for {
                Some(_) => rollout::plan(&port, bucket.as_ref().map(Bucket::as_str))?,
                None => Vec::new(),
            };
            if !returning.is_empty() {
                tier.output
                    .print(&returning, |out| rollout::write_plan(out, &returning))?;
            }
            let order = KillOff {
                bucket: bucket.clone(),
                reason: reason.clone(),
                by: operator(),
            };
            let ended: KillEnded = port.ask(port.post(kill_api::OFF, &order)?)?;
            let names: Vec<String> = returning.into_iter().map(|row| row.entry).collect();
            tier.output.print(&ended, |out| {
                answers::write_off(out, &ended, bucket.as_ref(), &names)
            })?;
            let resumed = match resumed_for {
                Some(reason) => rollout::resume(&port, tier.output, &names, reason)?,
                None => true,
            };
            resumed && answers::has_ended(&ended.status, bucket.as_ref())
        }
        KillCommand::Status { tier } => {
            let port = tier.port()?;
            let status: KillStatus = port.ask(port.get(kill_api::STATUS))?;
            tier.output
                .print(&status, |out| answers::write_status(out, &status))?;
            true
        }
        KillCommand::Drill { timeout, tier } => {
            let port = tier.port()?;
            let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(DRILL_MAX_MS);
            let request = port.post(kill_api::DRILL, &DrillOrder { timeout_ms })?;
            let answer = port.answer(request.timeout(*timeout + ANSWER_TIMEOUT));
            let drilled: DrillReport = shutdown::runtime()?.block_on(answer)?;
            tier.output
                .print(&drilled, |out| answers::write_drill(out, &drilled))?;
            drilled.complete
        }
    };
    Ok(exit_code(is_done))
}
