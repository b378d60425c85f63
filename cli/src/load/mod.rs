//! `plimsoll load`: open-loop HTTP load. Requests are sent when they are due, whether or not earlier ones
//! were answered, as many independent callers would send them.

mod args;
mod generator;
mod schedule;
mod summary;

use std::io::{self, Write};
use std::time::Duration;

use http::Uri;
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;

pub(crate) use args::{Args, TIMEOUT};
pub(crate) use generator::{Demand, Load};
pub(crate) use schedule::Schedule;
pub(crate) use summary::{Figures, Outcomes};

use crate::output;

/// Sends load until the duration is over or `shutdown` is cancelled, and prints the results: at the end and,
/// with `--every`, on the way. Each result counts from the beginning.
///
/// # Errors
/// A result cannot be printed.
pub(crate) async fn run(args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    let (every, duration, format) = (args.every, args.duration, args.output);
    let patience = args.timeout;
    let load = Load::start(demands(args), patience)?;
    let print_progress = async || -> anyhow::Result<()> {
        let Some(every) = every else { return std::future::pending().await };
        let mut ticks = interval(every);
        loop {
            ticks.tick().await;
            let summary = load.summary();
            // Without a reader of its progress the load ends.
            let done =
                format.write(&mut io::stdout().lock(), &summary, |out| writeln!(out, "{}", summary.line()));
            if let Err(error) = done {
                return if output::is_closed(&error) { Ok(()) } else { Err(error) };
            }
        }
    };
    tokio::select! {
        _ = timeout(duration.unwrap_or(Duration::MAX), shutdown.cancelled()) => {}
        failed = print_progress() => return failed,
    }
    load.stop().await;
    let summary = load.summary();
    let Outcomes { sent, failed, not_sent, .. } = summary.all.outcomes;
    if let Some(failure) = &summary.first_failure {
        writeln!(output::stderr(), "warning: {failed} requests failed, the first with: {failure}")?;
    } else if sent + not_sent == 0 {
        writeln!(output::stderr(), "warning: no request was due before the end")?;
    }
    format.print(&summary, |out| summary.write(out))
}

/// Spreads the load of `--rps` evenly over the tenants, and that of each tenant evenly over the targets.
fn demands(args: Args) -> Vec<Demand> {
    let each = args.rps.times(1.0 / args.tenant.len() as f64);
    let tenants = args.tenant.into_iter().map(|tenant| (tenant, each.clone())).chain(args.hot);
    let mut demands = Vec::new();
    for (tenant, rates) in tenants {
        let rates = rates.times(1.0 / args.target.len() as f64);
        let demand = |uri: &Uri| Demand {
            uri: uri.clone(),
            tenant: tenant.clone(),
            names: args.names,
            rates: rates.clone(),
        };
        demands.extend(args.target.iter().map(demand));
    }
    demands
}
