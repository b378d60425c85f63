//! `plimsoll-bench streams`: many real client streams, each on its own connection, and how fast a
//! limit or a kill reaches the clients.

mod args;
mod client;
mod controller;
mod decider;
mod kills;
pub(crate) mod process;
mod propagation;
mod storm;
mod watched;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use plimsoll_core::law::parameters;
use plimsoll_host::Shared;
use plimsoll_proto::driver::child;
use serde::Serialize;
use tokio::runtime::{Builder, Handle};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

pub(crate) use args::Args;
use args::Target;
use client::{Client, Clients, Connections, Load};
use controller::TimedController;
pub(crate) use controller::bucket;
use decider::Decider;
use process::TooFewFiles;
use watched::{Figures, Watched};

use crate::shutdown;

/// Exit code for system limits that are too low, which the error names.
const EXIT_USAGE: u8 = 2;
/// Files of a process in addition to its streams.
const FILES_SPARE: u64 = 64;
/// Streams opened in a row and the pause after them: about 800 streams/s, which overloads no
/// aggregator.
const STREAMS_PER_TURN: usize = 20;
const TURN: Duration = Duration::from_millis(25);
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Debug, Serialize)]
struct Line {
    at_s: f64,
    aggregators: Vec<Figures>,
    /// Requests that the deciding thread has decided, with a client of each aggregator.
    decided: u64,
    /// Decisions that made the deciding thread wait.
    decisions_waited: u64,
}

pub(crate) fn main(args: Args) -> ExitCode {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(std::io::stderr)
        .init();
    match shutdown::run_until_signal(|shutdown| run(args, shutdown)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            if error.is::<TooFewFiles>() {
                ExitCode::from(EXIT_USAGE)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

/// Opens the streams, changes the limit and prints lines until it is time to stop.
async fn run(args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    let streams: usize = args.aggregator.iter().map(|target| target.streams).sum();
    if let Err(error) = plimsoll_host::descriptors::raise() {
        tracing::warn!(%error, "the limit of open files could not be raised");
    }
    process::check_files(None, streams as u64 + FILES_SPARE)?;
    for (target, pid) in args.aggregator.iter().zip(&args.pid) {
        process::check_files(Some(*pid), target.streams as u64 + FILES_SPARE)?;
    }
    let stop = shutdown.child_token();
    let _stops_the_threads = stop.clone().drop_guard();
    let mut controller = match args.controller_elsewhere {
        true => None,
        false => Some(TimedController::start(args.listen, args.tenants, stop.clone()).await?),
    };
    let pids = args
        .pid
        .iter()
        .copied()
        .map(Some)
        .chain(std::iter::repeat(None));
    let watched = args
        .aggregator
        .iter()
        .zip(pids)
        .map(|(target, pid)| Watched::new(target, pid));
    let mut watched: Vec<Watched> = watched.collect();
    let started = Instant::now();
    let targets: Vec<(Target, Arc<Clients>)> = watched
        .iter()
        .map(|watched| (watched.target.clone(), Arc::clone(&watched.clients)))
        .collect();
    let network = watch::Sender::new(true);
    let opening = tokio::spawn(open_streams(
        targets.clone(),
        args.clone(),
        network.subscribe(),
        stop.clone(),
    ));
    let storms = storms(targets, network)?;
    let decider = opening.await.context("the streams could not be opened")??;
    let mut print_lines = async || -> anyhow::Result<()> {
        let mut ticks = interval(args.every);
        ticks.tick().await;
        loop {
            if let Some(controller) = &mut controller {
                controller.change_limit(|number, at| {
                    for Watched { clients, .. } in &watched {
                        let connected = clients.connected.load(Ordering::Relaxed);
                        clients.propagation.on_decision(number, at, connected);
                    }
                })?;
            }
            let from = Instant::now();
            ticks.tick().await;
            let now = Instant::now();
            let aggregators = watched
                .iter_mut()
                .map(|watched| watched.figures(now, now - from))
                .collect();
            let (decided, decisions_waited) = decider.figures();
            let at_s = (now - started).as_secs_f64();
            let line = serde_json::to_string(&Line {
                at_s,
                aggregators,
                decided,
                decisions_waited,
            })?;
            writeln!(std::io::stdout(), "{line}").context("cannot write to standard output")?;
        }
    };
    tokio::select! {
        _ = timeout(args.duration.unwrap_or(Duration::MAX), shutdown.cancelled()) => Ok(()),
        failed = print_lines() => failed,
        () = storms => Ok(()),
    }
}

/// Breaks all streams at SIGUSR1, and lets their clients connect again when none is connected. Never
/// ends.
fn storms(
    targets: Vec<(Target, Arc<Clients>)>,
    network: watch::Sender<bool>,
) -> anyhow::Result<impl Future<Output = ()>> {
    let mut storms = signal(SignalKind::user_defined1()).context("cannot wait for SIGUSR1")?;
    Ok(async move {
        loop {
            storms.recv().await;
            network.send_replace(false);
            for (target, clients) in &targets {
                while clients.connected.load(Ordering::Relaxed) > 0 {
                    sleep(TURN).await;
                }
                clients.storm.begin(target.streams, Instant::now());
            }
            network.send_replace(true);
        }
    })
}

/// Opens all streams, a few at a time and alternating between aggregators, and starts the deciding
/// thread.
async fn open_streams(
    targets: Vec<(Target, Arc<Clients>)>,
    args: Args,
    network: watch::Receiver<bool>,
    stop: CancellationToken,
) -> anyhow::Result<Decider> {
    let most = targets
        .iter()
        .map(|(target, _)| target.streams)
        .max()
        .unwrap_or_default();
    // The clients of each aggregator have their own threads, as they do not wait for another
    // aggregator's clients in production.
    let runtimes = targets
        .iter()
        .map(|_| client_runtime(stop.clone()))
        .collect::<anyhow::Result<Vec<Handle>>>()?;
    let mut deciding = Vec::new();
    let mut opened = 0;
    for number in 0..most {
        let open = targets
            .iter()
            .zip(&runtimes)
            .filter(|((target, _), _)| number < target.streams);
        for ((target, clients), runtime) in open {
            let names = args.names.map(|names| (names, args.buckets));
            let load = Load {
                tenants: args.tenants,
                names,
                rps: args.rps,
                lasts: args.ask_for,
            };
            let client = Client::new(opened, load, Arc::clone(clients))?;
            // The deciding thread decides far more than all clients together, which would hide
            // their missing counts.
            if number == 0 && !args.controller_elsewhere {
                deciding.extend(client.bucket());
            }
            let mut dial = args.dial(target)?;
            // Opened ahead, so that a storm only has to do handshakes.
            let mut spare = args
                .forget_sessions
                .then(|| args.dial(target))
                .transpose()?;
            let (client, clients) = (Shared::new(client), Arc::clone(clients));
            if args.names.is_some() {
                runtime.spawn(tick(client.clone()));
            }
            let (stop, mut network) = (stop.clone(), network.clone());
            runtime.spawn(async move {
                while network.wait_for(|is_up| *is_up).await.is_ok() {
                    let observer = Connections::new(Arc::clone(&clients));
                    let traffic = Some(Arc::clone(&clients.traffic));
                    let (client, stop) = (client.clone(), stop.clone());
                    tokio::select! {
                        () = child::run_metered(client, dial.clone(), traffic, stop, observer) => return,
                        _ = network.wait_for(|is_up| !*is_up) => {}
                    }
                    dial = spare.take().unwrap_or(dial);
                }
            });
            opened += 1;
            if opened % STREAMS_PER_TURN == 0 {
                sleep(TURN).await;
            }
        }
    }
    Decider::start(deciding, stop)
}

async fn tick(client: Shared<Client>) {
    let mut ticks = interval(parameters::REFILL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        client.with(|client, now| client.tick(now));
    }
}

/// Starts a runtime of two threads, which ends when `stop` is cancelled.
fn client_runtime(stop: CancellationToken) -> anyhow::Result<Handle> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("clients".to_owned())
        .spawn(move || {
            runtime.block_on(stop.cancelled());
            runtime.shutdown_timeout(CLOSE_TIMEOUT);
        })?;
    Ok(handle)
}
