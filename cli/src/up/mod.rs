//! `plimsoll up`: every tier in one process, over real loopback sockets, with demo services that are
//! overloaded.

mod demand;
mod fleet;
mod summary;
mod table;

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use anyhow::Context;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use fleet::Fleet;
use summary::Window;
use table::Screen;

use crate::load::{self, Load};
use crate::output::{Format, OutputArgs};

/// The last part of a run that the summary averages over.
const SUMMARY_WINDOW: Duration = Duration::from_secs(20);
/// The interval at which the table is redrawn.
const DRAW_EVERY: Duration = Duration::from_secs(1);
/// The seed of the load, so that each run shows the same.
const LOAD_SEED: u64 = 0;

/// The arguments of `plimsoll up`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Time after which to stop, such as 30s or 5m; without it, run until Ctrl-C
    #[arg(long, env = "PLIMSOLL_DURATION", value_name = "TIME", value_parser = humantime::parse_duration)]
    duration: Option<Duration>,
    /// Run only the controller and the aggregators, without demo services and load
    #[arg(long, env = "PLIMSOLL_NO_DEMO")]
    no_demo: bool,
    /// Policy file; without it a built-in example, copied to a directory where it can be edited
    #[arg(long, env = "PLIMSOLL_POLICY", value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Tenant file; without it and --policy, a built-in example
    #[arg(long, env = "PLIMSOLL_TENANTS", value_name = "FILE")]
    tenants: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs until the duration is over or `shutdown` is cancelled, and prints a summary.
///
/// # Errors
/// A tier cannot start or fails, or the summary cannot be printed.
pub(crate) async fn run(args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut end = pin!(timeout(args.duration.unwrap_or(Duration::MAX), shutdown.cancelled()));
    let mut screen = Screen::new(args.output.format == Format::Text);
    let fleet = Fleet::start(&args).await?;
    screen.print_once(&fleet.describe());
    let load = (!args.no_demo)
        .then(|| demand::demands(&fleet).and_then(|demands| Load::start(demands, load::TIMEOUT, LOAD_SEED)))
        .transpose()?;
    let mut window = Window::new(SUMMARY_WINDOW);
    let mut draws = interval(DRAW_EVERY);
    draws.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = &mut end => break,
            () = fleet.failed.cancelled() => break,
            _ = draws.tick() => {
                let status = fleet.status();
                window.push(started.elapsed(), &status.buckets);
                screen.draw(&status, &fleet.policies(), &window);
            }
        }
    }
    window.push(started.elapsed(), &fleet.status().buckets);
    let summary = window.summary(started.elapsed(), load.as_ref().map(|load| load.summary().all));
    if let Some(load) = load {
        load.stop().await;
    }
    fleet.stop().await.context("a part of the demo failed")?;
    drop(screen);
    args.output.print(&summary, |out| table::write_summary(out, &summary))
}
