//! `plimsoll up`: the whole system in one process, over real loopback sockets, with load that is too much for it.

mod demand;
mod fleet;
mod summary;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use fleet::Fleet;
use summary::Window;
use table::Screen;

use crate::load::{self, Load};

/// How much of the end of a run the summary is averaged over.
const WINDOW: Duration = Duration::from_secs(20);
/// How often the table is drawn.
const DRAWN_EVERY: Duration = Duration::from_secs(1);

/// What `up` is started with.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Stop after this long, such as 30s or 5m; without it, run until Ctrl-C
    #[arg(long, env = "PLIMSOLL_DURATION", value_name = "TIME", value_parser = humantime::parse_duration)]
    duration: Option<Duration>,
    /// Controller and aggregators alone, without demo services and load
    #[arg(long, env = "PLIMSOLL_NO_DEMO")]
    no_demo: bool,
    /// The policy; without it a built-in example, put into a directory where it can be edited
    #[arg(long, env = "PLIMSOLL_POLICY", value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The tenants; without it (and without --policy) a built-in example
    #[arg(long, env = "PLIMSOLL_TENANTS", value_name = "FILE")]
    tenants: Option<PathBuf>,
    /// What standard output carries: a table while it runs, or one JSON document at the end
    #[arg(long, short, env = "PLIMSOLL_OUTPUT", value_name = "FORMAT", default_value = "text")]
    output: Output,
}

/// What standard output carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Text,
    /// For scripts.
    Json,
}

/// Runs until the duration is over or `shutdown` is cancelled, and prints what happened.
pub(crate) async fn run(args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut screen = Screen::new(args.output == Output::Text);
    let fleet = Fleet::start(&args).await?;
    screen.say(&fleet.describe());
    let load = (!args.no_demo)
        .then(|| demand::demands(&fleet).and_then(|demands| Load::start(demands, load::TIMEOUT)))
        .transpose()?;
    let ends = args.duration.map(|duration| began + duration);
    let mut window = Window::new(WINDOW);
    let mut draws = interval(DRAWN_EVERY);
    draws.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = async { sleep_until(ends.unwrap_or(began)).await }, if ends.is_some() => break,
            () = fleet.broken() => break,
            _ = draws.tick() => {
                let status = fleet.status();
                window.push(began.elapsed(), &status);
                screen.draw(&status, &window);
            }
        }
    }
    window.push(began.elapsed(), &fleet.status());
    let summary = window.summary(began.elapsed(), load.as_ref().map(Load::figures));
    if let Some(load) = load {
        load.stop().await;
    }
    fleet.stop().await.context("a part of the fleet failed")?;
    match args.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&summary)?),
        Output::Text => print!("{}", table::final_table(&summary)),
    }
    Ok(())
}
