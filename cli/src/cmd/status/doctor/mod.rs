//! `plimsoll doctor`: asks every tier that it can reach, and says in a line each what is well, what is not, and what to do.

mod checks;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueHint};
use futures_util::future::join_all;
use plimsoll_controller::admin::status::Status;
use plimsoll_core::names::Text;
use plimsoll_host::descriptors;
use plimsoll_tls::Tier;
use reqwest::StatusCode;
use serde_json::json;

use crate::admin_client::{Address, AdminError, AdminPort, ControllerArgs};
use crate::cmd::exit_code;
use crate::output::OutputArgs;
use crate::shutdown;
use checks::{Check, Grade};

/// Maximum time for an answer: a tier that needs longer is not well.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Check the whole installation: one line for each check, with a remedy
///
/// It asks each controller, and of the aggregators and sidecars those whose admin ports --admin names: leader, role of the
/// token, certificates, clocks, versions, limits of open files, policy, kill files, state. It changes nothing. Exit code 0:
/// nothing failed; 1: a check failed; 2: invalid arguments.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    controller: ControllerArgs,
    /// Admin ports of aggregators (7411) and sidecars to check, too, separated by commas
    #[arg(long, env = "PLIMSOLL_ADMINS", value_name = "URL", value_delimiter = ',', value_hint = ValueHint::Url, value_parser = |text: &str| Address::parse(text, Tier::Aggregator))]
    admin: Vec<Address>,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let checks = shutdown::runtime()?.block_on(check(args))?;
    args.output.print(&json!({ "checks": checks }), |out| {
        checks.iter().try_for_each(|check| {
            // A cause may come from a server, and have more lines.
            let line = check.to_string().replace(Text::is_unfit, " ");
            writeln!(out, "{line}")
        })
    })?;
    Ok(exit_code(
        checks.iter().all(|check| check.grade != Grade::Fail),
    ))
}

/// Asks all tiers at once.
///
/// # Errors
/// The credentials cannot be used.
async fn check(args: &DoctorArgs) -> Result<Vec<Check>, AdminError> {
    let port = |address| AdminPort::new(address, &args.controller.credentials);
    let controllers = args.controller.addresses.iter().map(port);
    let controllers: Vec<AdminPort> = controllers.collect::<Result<_, _>>()?;
    let tiers: Vec<AdminPort> = args.admin.iter().map(port).collect::<Result<_, _>>()?;
    let led = Cell::new(false);
    let asked = join_all(controllers.iter().map(|port| of_controller(port, &led)));
    let (of_controllers, of_tiers) = tokio::join!(asked, join_all(tiers.iter().map(of_tier)));
    let limit = descriptors::raise().map_or_else(|_| descriptors::limit(), |raised| raised.limit);
    let mut checks = vec![checks::descriptors("this machine", limit)];
    if !led.get() {
        let remedy = "restart the one that hangs or start one, or name all admin ports of controllers with --controller";
        checks.push(Check::new(
            Grade::Fail,
            "leader",
            "no controller leads",
            remedy,
        ));
    }
    checks.extend(of_controllers.into_iter().chain(of_tiers).flatten());
    if args.admin.is_empty() {
        let text = "not asked: --admin names the admin ports of aggregators and sidecars";
        checks.push(Check::ok("other tiers", text));
    }
    Ok(checks)
}

/// Checks a controller. A standby answers nothing else.
async fn of_controller(port: &AdminPort, led: &Cell<bool>) -> Vec<Check> {
    let name = format!("controller {}", port.address());
    let asked = async {
        let answer = port.send(port.get("/lead").timeout(ANSWER_MAX)).await?;
        let clock = answer.clock_ahead_s().map(|it| checks::clock(&name, it));
        if answer.response.status() == StatusCode::SERVICE_UNAVAILABLE {
            return Ok((vec![Check::ok(&name, "answers, stands by")], clock));
        }
        let status: Status = port.answer(port.get("/status").timeout(ANSWER_MAX)).await?;
        led.set(led.get() || status.lost_lead.is_none());
        Ok((checks::of_status(&name, &status), clock))
    };
    with_clock(&name, asked.await)
}

/// Checks an aggregator or a sidecar.
async fn of_tier(port: &AdminPort) -> Vec<Check> {
    let name = port.address().to_string();
    let asked = async {
        let answer = port.send(port.get("/metrics").timeout(ANSWER_MAX)).await?;
        let clock = answer.clock_ahead_s().map(|it| checks::clock(&name, it));
        let metrics = port.text(answer.response).await?;
        let status = port.answer(port.get("/status").timeout(ANSWER_MAX)).await?;
        Ok((checks::of_tier(&name, &status, &metrics), clock))
    };
    with_clock(&name, asked.await)
}

fn with_clock(name: &str, asked: Result<(Vec<Check>, Option<Check>), AdminError>) -> Vec<Check> {
    match asked {
        Err(error) => vec![Check::unanswered(name, &error)],
        Ok((mut checks, clock)) => {
            checks.extend(clock);
            checks
        }
    }
}
