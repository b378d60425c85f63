//! `plimsoll load`: open-loop HTTP load. Requests are sent when they are due, whether or not earlier ones
//! were answered, as many independent callers would send them.

mod args;
mod generator;
mod outcomes;
mod schedule;
mod summary;

use std::io::{self, Write};

use http::Uri;
use tokio::time::{interval, sleep};
use tokio_util::sync::CancellationToken;

pub(crate) use args::{Args, TIMEOUT};
pub(crate) use generator::{Demand, Load};
pub(crate) use outcomes::{Figures, Outcomes};
pub(crate) use schedule::Schedule;

use crate::output::{Format, json_line};
use summary::Summary;

/// Sends load until the duration is over or `shutdown` is cancelled, and prints the results: at the end and,
/// with `--every`, on the way. Each result counts from the beginning.
///
/// # Errors
/// A result cannot be printed.
pub(crate) async fn run(args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    let (every, duration, timeout) = (args.every, args.duration, args.timeout);
    let format = args.output.format;
    let load = Load::start(demands(args), timeout)?;
    let end = async {
        match duration {
            Some(duration) => tokio::select! { () = sleep(duration) => {}, () = shutdown.cancelled() => {} },
            None => shutdown.cancelled().await,
        }
    };
    let print_progress = async {
        let Some(every) = every else { return std::future::pending().await };
        let mut ticks = interval(every);
        loop {
            ticks.tick().await;
            let summary = Summary::new(&load);
            let printed = match format {
                Format::Text => writeln!(io::stdout(), "{}", summary.line()).map_err(anyhow::Error::from),
                Format::Json => json_line(&mut io::stdout(), &summary),
            };
            if let Err(error) = printed {
                return error;
            }
        }
    };
    tokio::select! {
        () = end => {}
        error = print_progress => return Err(error),
    }
    load.stop().await;
    let summary = Summary::new(&load);
    match load.first_failure() {
        Some(failure) => {
            eprintln!("warning: {} requests failed, the first with: {failure}", summary.failed())
        }
        None if summary.is_empty() => eprintln!("warning: no request was due before the end"),
        None => {}
    }
    match format {
        Format::Text => summary.write(&mut io::stdout()).map_err(anyhow::Error::from),
        Format::Json => json_line(&mut io::stdout(), &summary),
    }
}

/// Spreads the load of `--rps` evenly over the tenants, and that of each tenant evenly over the targets.
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
