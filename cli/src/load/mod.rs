//! `plimsoll load`: open-loop HTTP load. Requests are sent when they are due, whether or not
//! earlier ones were answered, as many independent callers would send them.

mod args;
mod caller;
mod generator;
mod schedule;
mod summary;

use std::io::{self, Write};
use std::time::Duration;

use http::Uri;
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;

pub(crate) use args::{Args, TIMEOUT};
pub(crate) use caller::{Caller, Manners};
pub(crate) use generator::{Demand, Load};
pub(crate) use schedule::Schedule;
pub(crate) use summary::{Figures, Outcomes};

use crate::output;

/// Sends load until the duration is over or `shutdown` is cancelled, and prints the results: at the
/// end and, with `--every`, during the run. Each result counts from the beginning.
///
/// # Errors
/// No request was answered, or a result cannot be printed.
pub(crate) async fn run(args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    let (every, duration, format) = (args.every, args.duration, args.output);
    let patience = args.timeout;
    let seed = args
        .seed
        .map_or_else(|| getrandom::u32().map(u64::from), Ok)?;
    let caller = Caller::new(args.caller, args.retries);
    let load = Load::start(demands(args), caller, patience, seed)?;
    let print_progress = async || -> anyhow::Result<()> {
        let Some(every) = every else {
            return std::future::pending().await;
        };
        let mut ticks = interval(every);
        loop {
            ticks.tick().await;
            let summary = load.summary();
            // Without a reader of its progress the load ends.
            let done = format.write(&mut io::stdout().lock(), &summary, |out| {
                writeln!(out, "{}", summary.line())
            });
            if let Err(error) = done {
                return if output::is_closed(&error) {
                    Ok(())
                } else {
                    Err(error)
                };
            }
        }
    };
    tokio::select! {
        _ = timeout(duration.unwrap_or(Duration::MAX), shutdown.cancelled()) => {}
        ended = print_progress() => return ended,
    }
    load.stop().await;
    let summary = load.summary();
    let Outcomes {
        sent,
        failed,
        not_sent,
        ..
    } = summary.all.outcomes;
    if let Some(failure) = summary.first_failure.as_ref().filter(|_| !summary.answered) {
        anyhow::bail!(
            "none of {sent} requests was answered, the first with: {failure}. Start the service, or give --target an \
             address that `plimsoll up` prints"
        );
    }
    if let Some(failure) = &summary.first_failure {
        writeln!(
            output::stderr(),
            "warning: {failed} requests failed, the first with: {failure}"
        )?;
    } else if sent + not_sent == 0 {
        writeln!(
            output::stderr(),
            "warning: no request was due before the end"
        )?;
    }
    format.print(&summary, |out| summary.write(out))
}

/// Spreads the load of `--rps` evenly over the tenants, and the load of each tenant evenly over the
/// targets.
fn demands(args: Args) -> Vec<Demand> {
    let each = args.rps.times(1.0 / args.tenant.len() as f64);
    let tenants = args
        .tenant
        .into_iter()
        .map(|tenant| (tenant, args.plan.clone(), args.names, each.clone()));
    let hot = args.hot.map(|(tenant, rates)| (tenant, None, None, rates));
    let mut demands = Vec::new();
    for (tenant, plan, names, rates) in tenants.chain(hot) {
        let rates = rates.times(1.0 / args.target.len() as f64);
        let demand = |uri: &Uri| Demand {
            uri: uri.clone(),
            tenant: tenant.clone(),
            plan: plan.clone(),
            names,
            rates: rates.clone(),
        };
        demands.extend(args.target.iter().map(demand));
    }
    demands
}

#[cfg(test)]
mod tests {
    use clap::{FromArgMatches, error::ErrorKind};

    use super::*;

    fn parse(args: &str) -> Result<Args, clap::Error> {
        let command =
            <Args as clap::Args>::augment_args(clap::Command::new("load").no_binary_name(true));
        Args::from_arg_matches(&command.try_get_matches_from(args.split_ascii_whitespace())?)
    }

    #[test]
    fn hot_tenant_keeps_its_name() {
        let args =
            parse("--target http://a/b --rps 1 --tenant user --names 3 --hot acme=1").unwrap();
        let names: Vec<_> = demands(args)
            .into_iter()
            .map(|demand| (demand.tenant, demand.names))
            .collect();
        let [(user, Some(_)), (acme, None)] = &names[..] else {
            panic!("{names:?}")
        };
        assert_eq!(
            (user, acme),
            (&"user".parse().unwrap(), &"acme".parse().unwrap())
        );
    }

    #[test]
    fn negative_rate_names_its_flag() {
        let error = parse("--target http://a/b --rps -5").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ValueValidation);
        assert!(error.to_string().contains("'--rps"), "{error}");
    }

    #[tokio::test]
    async fn load_without_any_answer_fails() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let args = parse(&format!(
            "--target http://{closed}/b --rps 100 --duration 100ms"
        ))
        .unwrap();
        let error = run(args, CancellationToken::new())
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&closed.to_string()) && error.contains("Start the service"),
            "{error}"
        );
    }
}
