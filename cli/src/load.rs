//! Open-loop load over real HTTP: requests leave when they are due, whether or not earlier ones were answered, as a
//! crowd of independent callers would send them.

mod callers;
mod outcomes;
mod schedule;

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use clap::ValueHint;
use http::{HeaderValue, Uri};
use serde::Serialize;
use tokio::time::{interval, sleep};
use tokio_util::sync::CancellationToken;

pub(crate) use callers::{Demand, Load};
pub(crate) use outcomes::{Figures, Outcomes};
pub(crate) use schedule::Schedule;

/// How long callers wait for an answer unless told otherwise.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

/// What the load generator is started with.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// What to ask, such as http://127.0.0.1:8080/checkout; several share the rate evenly
    #[arg(long, env = "PLIMSOLL_TARGETS", value_name = "URL", value_delimiter = ',', required = true, value_hint = ValueHint::Url)]
    target: Vec<Uri>,
    /// Requests/s in all, and from certain moments on, as in 800,10000@10s
    #[arg(long, env = "PLIMSOLL_RPS", value_name = "RATE[,RATE@TIME]...")]
    rps: Schedule,
    /// On whose behalf; several share the rate evenly
    #[arg(
        long,
        env = "PLIMSOLL_TENANT",
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "default"
    )]
    tenant: Vec<HeaderValue>,
    /// One more tenant, with requests/s of its own
    #[arg(long, env = "PLIMSOLL_HOT", value_name = "NAME=RATE[,RATE@TIME]...", value_parser = hot)]
    hot: Option<(HeaderValue, Schedule)>,
    /// How long a caller waits for an answer; one that comes later is of no use
    #[arg(long, env = "PLIMSOLL_TIMEOUT", value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// Print what came back so far this often, too
    #[arg(long, env = "PLIMSOLL_EVERY", value_name = "TIME", value_parser = period)]
    every: Option<Duration>,
    /// Stop after this long; without it, run until Ctrl-C
    #[arg(long, env = "PLIMSOLL_DURATION", value_name = "TIME", value_parser = humantime::parse_duration)]
    duration: Option<Duration>,
}

fn hot(text: &str) -> Result<(HeaderValue, Schedule), String> {
    let (name, rates) = text.split_once('=').ok_or("NAME=RATE is due, as in acme=500")?;
    Ok((name.parse().map_err(|_| format!("`{name}` is not a tenant"))?, rates.parse()?))
}

pub(crate) fn period(text: &str) -> Result<Duration, String> {
    let period = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if period.is_zero() { Err("a time above 0 is due".to_owned()) } else { Ok(period) }
}

/// What the callers have seen up to a moment, in all and by tenant.
#[derive(Clone, Debug, Serialize)]
struct Line {
    /// Seconds since the first request could be sent.
    at_s: f64,
    #[serde(flatten)]
    all: Figures,
    tenants: BTreeMap<String, Outcomes>,
}

/// Sends load until it is time to stop, and prints what came back as JSON: at the end and, if asked to, on the way, one
/// line each, counted from the beginning.
pub(crate) async fn run(args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    let (every, duration, timeout) = (args.every, args.duration, args.timeout);
    let load = Load::start(demands(args), timeout)?;
    let ends = async {
        match duration {
            Some(duration) => tokio::select! { () = sleep(duration) => {}, () = shutdown.cancelled() => {} },
            None => shutdown.cancelled().await,
        }
    };
    let tell = async {
        let Some(every) = every else { return std::future::pending().await };
        let mut ticks = interval(every);
        loop {
            ticks.tick().await;
            if let Err(error) = print(&load) {
                return error;
            }
        }
    };
    tokio::select! {
        () = ends => {}
        error = tell => return Err(error),
    }
    load.stop().await;
    print(&load)
}

/// The even load and the hot tenant, each spread over all addresses.
fn demands(args: Args) -> Vec<Demand> {
    let each = args.rps.times(1.0 / args.tenant.len() as f64);
    let tenants = args.tenant.into_iter().map(|tenant| (tenant, each.clone())).chain(args.hot);
    let mut demands = Vec::new();
    for (tenant, rates) in tenants {
        let rates = rates.times(1.0 / args.target.len() as f64);
        let demand = |uri: &Uri| Demand { uri: uri.clone(), tenant: tenant.clone(), rates: rates.clone() };
        demands.extend(args.target.iter().map(demand));
    }
    demands
}

fn print(load: &Load) -> anyhow::Result<()> {
    let line = Line { at_s: load.age().as_secs_f64(), all: load.figures(), tenants: load.tenants() };
    let line = serde_json::to_string(&line)?;
    writeln!(std::io::stdout(), "{line}").context("the figures cannot be written")
}
