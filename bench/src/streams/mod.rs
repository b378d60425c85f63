//! Many real client streams to aggregators, each on a connection of its own, and how soon a decision of the controller
//! reaches them.

mod client;
mod control;
mod hearing;
mod killed;
mod process;

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ValueHint;
use plimsoll_client::BucketHandle;
use plimsoll_proto::driver::child;
use plimsoll_proto::shared::Shared;
use plimsoll_proto::driver::child::traffic::Traffic;
use plimsoll_proto::transport::{self, InvalidEndpoint};
use serde::Serialize;
use tokio::runtime::{Builder, Handle};
use tokio::time::{interval, sleep};
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;

use client::{Asks, Client, Counting, Crowd};
use control::Control;
use hearing::{Heard, Hearing};
use killed::{Killed, TakenUp};
pub(crate) use process::TooFewFiles;

/// Files of a process besides those of its streams.
const FILES_SPARE: u64 = 64;
/// Streams opened in a row, and the pause until the next ones are: some 800 a second, which is no storm.
const STREAMS_PER_TURN: usize = 20;
const TURN: Duration = Duration::from_millis(25);
/// How long clients may take to say farewell.
const FAREWELLS: Duration = Duration::from_millis(500);
/// What the thread that decides all the time does in a row, and how long it sleeps in between.
const DECISIONS_PER_TURN: u64 = 1_000;
const DECIDER_SLEEPS: Duration = Duration::from_millis(5);

/// Runs a controller of its own, for aggregators that are started with `--controller` and the address given here, and
/// opens client streams to them. Once in each interval it changes the limit and prints a line of JSON: for each aggregator,
/// the clients connected, bytes at their sockets per client and second both ways, and the time from the moment the
/// controller takes the new limit to the moment each client has applied it. Both moments are read from one monotonic
/// clock, in this process. Clients that were connected at the decision and have not applied it yet count as if they did
/// when the line is printed. The limit is far above what is asked for.
///
/// With `--controller-elsewhere` it starts no controller and decides nothing: what clients decide and what was counted of
/// it can then be compared while controllers come and go.
///
/// A client is the real limiter with the real driver of its stream, but for the refill of its guard, which no wire sees.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// An aggregator and how many streams to open to it, as in http://127.0.0.1:7410=1000; several may be given
    #[arg(long, env = "PLIMSOLL_AGGREGATORS", value_name = "URL=STREAMS", value_delimiter = ',', required = true, value_parser = target, value_hint = ValueHint::Url)]
    aggregator: Vec<Target>,
    /// Where the controller in this process listens for the aggregators
    #[arg(long, env = "PLIMSOLL_LISTEN", value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, plimsoll_controller::PORT)))]
    listen: SocketAddr,
    /// Start no controller and decide nothing: the aggregators have one of their own
    #[arg(long, env = "PLIMSOLL_CONTROLLER_ELSEWHERE", conflicts_with = "listen")]
    controller_elsewhere: bool,
    /// Process ids of the aggregators, in the same order: their processor time and memory are printed, too
    #[arg(long, env = "PLIMSOLL_PIDS", value_name = "PID", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Tenants, each client asking on behalf of one of them; a directive has an entry for each
    #[arg(long, env = "PLIMSOLL_TENANTS", value_name = "COUNT", default_value_t = 10)]
    tenants: usize,
    /// Requests/s that each client decides
    #[arg(long, env = "PLIMSOLL_RPS", value_name = "RATE", default_value_t = 10.0)]
    rps: f64,
    /// Let clients ask only this long, from their first report on; their streams stay, so that everything is counted
    #[arg(long, env = "PLIMSOLL_ASK_FOR", value_name = "TIME", value_parser = humantime::parse_duration)]
    ask_for: Option<Duration>,
    /// Decide, and print a line, this often
    #[arg(long, env = "PLIMSOLL_EVERY", value_name = "TIME", default_value = "1s", value_parser = super::load::period)]
    every: Duration,
    /// Stop after this long; without it, run until Ctrl-C
    #[arg(long, env = "PLIMSOLL_DURATION", value_name = "TIME", value_parser = humantime::parse_duration)]
    duration: Option<Duration>,
}

/// An aggregator, and how many streams it gets.
#[derive(Clone, Debug)]
struct Target {
    url: String,
    endpoint: Endpoint,
    streams: usize,
}

fn target(text: &str) -> Result<Target, String> {
    let (url, streams) =
        text.rsplit_once('=').ok_or("URL=STREAMS is due, as in http://127.0.0.1:7410=1000")?;
    let streams = streams.parse().map_err(|_| format!("`{streams}` is not a number of streams"))?;
    let endpoint = transport::endpoint(url).map_err(|error: InvalidEndpoint| error.to_string())?;
    Ok(Target { url: url.to_owned(), endpoint, streams })
}

/// One line of output.
#[derive(Debug, Serialize)]
struct Line {
    /// Seconds since the streams began to be opened.
    at_s: f64,
    aggregators: Vec<Figures>,
    /// Requests that one thread has decided all the while, by clients of each aggregator.
    decided: u64,
    /// How often a decision of these made its thread wait for anything.
    decisions_waited: u64,
}

/// What is seen of one aggregator.
#[derive(Debug, Serialize)]
struct Figures {
    aggregator: String,
    streams: usize,
    connected: usize,
    /// Streams that ended after they had begun.
    lost: u64,
    /// Requests that its clients have decided since they began.
    asked: u64,
    decision: Heard,
    kill: TakenUp,
    up_bytes_per_client_s: f64,
    down_bytes_per_client_s: f64,
    /// Processors in use since the last line; null without a process id.
    cores: Option<f64>,
    resident_bytes: Option<u64>,
}

/// A target at work.
struct Watched {
    target: Target,
    crowd: Arc<Crowd>,
    pid: Option<u32>,
    /// Bytes and processor time at the last line.
    bytes: (u64, u64),
    worked: Option<Duration>,
}

/// Opens the streams, decides and prints until it is time to stop.
pub(crate) async fn run(args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    let all: usize = args.aggregator.iter().map(|target| target.streams).sum();
    process::check_files(None, all as u64 + FILES_SPARE)?;
    for (target, pid) in args.aggregator.iter().zip(&args.pid) {
        process::check_files(Some(*pid), target.streams as u64 + FILES_SPARE)?;
    }
    let stop = shutdown.child_token();
    let _ends_with_this = stop.clone().drop_guard();
    let mut control = match args.controller_elsewhere {
        true => None,
        false => Some(Control::start(args.listen, args.tenants, stop.clone()).await?),
    };
    let pids = args.pid.iter().copied().map(Some).chain(std::iter::repeat(None));
    let watched = args.aggregator.iter().zip(pids).map(|(target, pid)| Watched::new(target, pid));
    let mut watched: Vec<Watched> = watched.collect::<anyhow::Result<_>>()?;
    let began = Instant::now();
    let opening = tokio::spawn(open(
        watched.iter().map(|watched| (watched.target.clone(), Arc::clone(&watched.crowd))).collect(),
        args.clone(),
        stop.clone(),
    ));
    let decider = opening.await.context("the streams could not be opened")??;
    let ends = async {
        match args.duration {
            Some(duration) => tokio::select! { () = sleep(duration) => {}, () = shutdown.cancelled() => {} },
            None => shutdown.cancelled().await,
        }
    };
    let talk = async {
        let mut ticks = interval(args.every);
        ticks.tick().await;
        loop {
            let decided = control.as_mut().map(|control| {
                control.decide(|number, at| {
                    for Watched { crowd, .. } in &watched {
                        crowd.hearing.on_decision(number, at, crowd.connected.load(Ordering::Relaxed));
                    }
                })
            });
            if let Some(Err(error)) = decided {
                return error;
            }
            let from = Instant::now();
            ticks.tick().await;
            let now = Instant::now();
            let aggregators = watched.iter_mut().map(|watched| watched.figures(now, now - from)).collect();
            let (decided, decisions_waited) = decider.figures();
            let at_s = (now - began).as_secs_f64();
            let line = Line { at_s, aggregators, decided, decisions_waited };
            let line = serde_json::to_string(&line).map_err(anyhow::Error::from);
            let written = line.and_then(|line| {
                writeln!(std::io::stdout(), "{line}").context("the figures cannot be written")
            });
            if let Err(error) = written {
                return error;
            }
        }
    };
    tokio::select! {
        () = ends => Ok(()),
        error = talk => Err(error),
    }
}

/// Opens all streams, a few at a time and those of the aggregators in turn; yields what decides all the while.
async fn open(
    crowds: Vec<(Target, Arc<Crowd>)>,
    args: Args,
    stop: CancellationToken,
) -> anyhow::Result<Decider> {
    let most = crowds.iter().map(|(target, _)| target.streams).max().unwrap_or_default();
    // Threads of their own for each aggregator's clients: they would be elsewhere, and must not wait for those of another.
    let threads = crowds.iter().map(|_| threads(stop.clone())).collect::<anyhow::Result<Vec<Handle>>>()?;
    let mut deciding = Vec::new();
    let mut opened = 0;
    for number in 0..most {
        let wanting = crowds.iter().zip(&threads).filter(|((target, _), _)| number < target.streams);
        for ((target, crowd), threads) in wanting {
            let asks = Asks { rps: args.rps, lasts: args.ask_for };
            let client = Client::new(opened, args.tenants, asks, Arc::clone(crowd))?;
            // It would decide far more than all clients together, which hides what is missing of theirs.
            if number == 0 && !args.controller_elsewhere {
                deciding.push(client.bucket());
            }
            let (endpoint, observer) = (target.endpoint.clone(), Counting(Arc::clone(crowd)));
            let (traffic, stop) = (Arc::clone(&crowd.traffic), stop.clone());
            threads.spawn(async move {
                child::run_metered(Shared::new(client), &endpoint, traffic, stop, observer).await;
            });
            opened += 1;
            if opened % STREAMS_PER_TURN == 0 {
                sleep(TURN).await;
            }
        }
    }
    Decider::start(deciding, stop)
}

/// A runtime of its own, until `stop` is cancelled.
fn threads(stop: CancellationToken) -> anyhow::Result<Handle> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new().name("clients".to_owned()).spawn(move || {
        runtime.block_on(stop.cancelled());
        runtime.shutdown_timeout(FAREWELLS);
    })?;
    Ok(handle)
}

/// A thread that decides all the time, to see that no decision ever waits.
struct Decider {
    decided: Arc<AtomicU64>,
    waited: Arc<AtomicU64>,
}

impl Decider {
    fn start(buckets: Vec<BucketHandle>, stop: CancellationToken) -> anyhow::Result<Self> {
        let (decided, waited) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let decider = Self { decided: Arc::clone(&decided), waited: Arc::clone(&waited) };
        let stopped = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stopped);
        tokio::spawn(async move {
            stop.cancelled().await;
            stopping.store(true, Ordering::Relaxed);
        });
        let tenant = control::tenant(0);
        thread::Builder::new().name("decider".to_owned()).spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let before = process::waits_of_this_thread();
                for bucket in &buckets {
                    (0..DECISIONS_PER_TURN).for_each(|_| {
                        let _ = bucket.admit(&tenant);
                    });
                }
                waited.fetch_add(process::waits_of_this_thread() - before, Ordering::Relaxed);
                decided.fetch_add(DECISIONS_PER_TURN * buckets.len() as u64, Ordering::Relaxed);
                thread::sleep(DECIDER_SLEEPS);
            }
        })?;
        Ok(decider)
    }

    fn figures(&self) -> (u64, u64) {
        (self.decided.load(Ordering::Relaxed), self.waited.load(Ordering::Relaxed))
    }
}

impl Watched {
    fn new(target: &Target, pid: Option<u32>) -> anyhow::Result<Self> {
        let crowd = Crowd {
            hearing: Hearing::new()?,
            killed: Killed::default(),
            traffic: Arc::new(Traffic::default()),
            connected: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            asked: AtomicU64::new(0),
        };
        let worked = pid.and_then(process::processor_time);
        Ok(Self { target: target.clone(), crowd: Arc::new(crowd), pid, bytes: (0, 0), worked })
    }

    fn figures(&mut self, now: Instant, span: Duration) -> Figures {
        let crowd = &self.crowd;
        let connected = crowd.connected.load(Ordering::Relaxed);
        let traffic = &crowd.traffic;
        let bytes = (traffic.up.load(Ordering::Relaxed), traffic.down.load(Ordering::Relaxed));
        let rate =
            |now: u64, before: u64| (now - before) as f64 / span.as_secs_f64() / connected.max(1) as f64;
        let worked = self.pid.and_then(process::processor_time);
        let cores = worked.zip(self.worked).and_then(|(now, before)| now.checked_sub(before));
        let figures = Figures {
            aggregator: self.target.url.clone(),
            streams: self.target.streams,
            connected,
            lost: crowd.lost.load(Ordering::Relaxed),
            asked: crowd.asked.load(Ordering::Relaxed),
            decision: crowd.hearing.figures(now, connected),
            kill: crowd.killed.figures(),
            up_bytes_per_client_s: rate(bytes.0, self.bytes.0),
            down_bytes_per_client_s: rate(bytes.1, self.bytes.1),
            cores: cores.map(|worked| worked.as_secs_f64() / span.as_secs_f64()),
            resident_bytes: self.pid.and_then(process::resident_bytes),
        };
        (self.bytes, self.worked) = (bytes, worked);
        figures
    }
}
