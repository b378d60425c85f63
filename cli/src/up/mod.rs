//! `plimsoll up`: every tier in one process, over real loopback sockets, with overloaded demo
//! services.

mod controllers;
mod demand;
mod fleet;
mod summary;
mod table;

use std::io::Write;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use anyhow::Context;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use fleet::Fleet;
use summary::Window;

use crate::load::{self, Caller, Load, Manners};
use crate::output::{self, Format, OutputArgs};

/// Last part of a run that the summary averages over.
const SUMMARY_WINDOW: Duration = Duration::from_secs(20);
/// Span of the rates of each table: ten roll-ups, so that one more or less changes little.
const TABLE_WINDOW: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOKS_PER_TABLE: u32 = 5;
/// Constant, so that each run shows the same.
const LOAD_SEED: u64 = 0;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Time after which to stop, such as 30s or 5m; without it, run until Ctrl-C
    #[arg(long, env = "PLIMSOLL_DURATION", value_name = "TIME", value_parser = humantime::parse_duration)]
    duration: Option<Duration>,
    /// Run only the controllers, the aggregators and the quota server, without demo services and load
    #[arg(long, env = "PLIMSOLL_NO_DEMO")]
    no_demo: bool,
    /// Policy file; without it a built-in example, copied to a directory where it can be edited
    #[arg(long, env = "PLIMSOLL_POLICY", value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Tenant file; without it and --policy, a built-in example
    #[arg(long, env = "PLIMSOLL_TENANTS", value_name = "FILE")]
    tenants: Option<PathBuf>,
    /// Catalogue of tenants, as the controller takes it
    #[arg(long, env = "PLIMSOLL_CATALOGUE", value_name = "FILE")]
    catalogue: Option<PathBuf>,
    /// Number of controllers. Several share an etcd, which is started if it is installed: one leads, and another one
    /// takes over when it ends or resigns
    #[arg(long, env = "PLIMSOLL_CONTROLLERS", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
    controllers: u8,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs until the duration is over or `shutdown` is cancelled, and prints a summary.
///
/// # Errors
/// A tier cannot start or fails, or the summary cannot be printed.
pub(crate) async fn run(args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut end = pin!(timeout(
        args.duration.unwrap_or(Duration::MAX),
        shutdown.cancelled()
    ));
    let fleet = Fleet::start(&args).await?;
    let prints_tables = args.output.format == Format::Text;
    // A failed output does not stop the demo.
    let _ = if prints_tables {
        writeln!(output::stdout(), "{}", fleet.describe())
    } else {
        writeln!(output::stderr(), "{}", fleet.describe())
    };
    let load = if args.no_demo {
        None
    } else {
        let demands = demand::demands(&fleet, &fleet.controllers.status().await?)?;
        let caller = Caller::new(Manners::Polite, 0);
        Some(Load::start(demands, caller, load::TIMEOUT, LOAD_SEED)?)
    };
    let mut window = Window::new(SUMMARY_WINDOW);
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for look in 1_u32.. {
        tokio::select! {
            _ = &mut end => break,
            () = fleet.failed.cancelled() => break,
            _ = looks.tick() => {}
        }
        // None leads during a takeover.
        let Ok(status) = fleet.controllers.status().await else {
            continue;
        };
        window.push(started.elapsed(), &status.buckets);
        if prints_tables && look.is_multiple_of(LOOKS_PER_TABLE) {
            let Ok(policies) = fleet.controllers.policies().await else {
                continue;
            };
            let present = window.summary(started.elapsed(), TABLE_WINDOW, None);
            let _ = writeln!(
                output::stdout(),
                "{}",
                table::present(&status, &policies, &present)
            );
        }
    }
    if let Ok(status) = fleet.controllers.status().await {
        window.push(started.elapsed(), &status.buckets);
    }
    let summary = window.summary(
        started.elapsed(),
        SUMMARY_WINDOW,
        load.as_ref().map(|load| load.summary().all),
    );
    if let Some(load) = load {
        load.stop().await;
    }
    fleet.stop().await.context("a part of the demo failed")?;
    args.output
        .print(&summary, |out| table::write_summary(out, &summary))
}
