//! Open-loop load over real HTTP: requests leave when they are due, whether or not earlier ones were answered, as a
//! crowd of independent callers would send them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use clap::ValueHint;
use hdrhistogram::Histogram;
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How often requests that are due are sent.
const PACE: Duration = Duration::from_millis(5);
/// Requests under way at most; beyond it a request that is due counts as not sent.
const IN_FLIGHT_MAX: usize = 2_000;
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

type HttpClient = Client<HttpConnector, Empty<Bytes>>;

/// What the load generator is started with.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// What to ask, such as http://127.0.0.1:8080/checkout; several share the rate evenly
    #[arg(long, env = "PLIMSOLL_TARGETS", value_name = "URL", value_delimiter = ',', required = true, value_hint = ValueHint::Url)]
    target: Vec<Uri>,
    /// Requests/s in all
    #[arg(long, env = "PLIMSOLL_RPS", value_name = "RATE", value_parser = rate)]
    rps: f64,
    /// On whose behalf; several share the rate evenly
    #[arg(
        long,
        env = "PLIMSOLL_TENANT",
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "default"
    )]
    tenant: Vec<HeaderValue>,
    /// Stop after this long; without it, run until Ctrl-C
    #[arg(long, env = "PLIMSOLL_DURATION", value_name = "TIME", value_parser = humantime::parse_duration)]
    duration: Option<Duration>,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "a number of requests/s is due".to_owned())?;
    if rate > 0.0 && rate.is_finite() { Ok(rate) } else { Err("a rate above 0 is due".to_owned()) }
}

/// Sends load until it is time to stop, and prints what came back as JSON.
pub(crate) async fn run(args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    let share = args.rps / (args.target.len() * args.tenant.len()) as f64;
    let demand =
        |uri: &Uri| args.tenant.iter().map(|tenant| (uri.clone(), tenant.clone(), share)).collect::<Vec<_>>();
    let demands = args.target.iter().flat_map(demand).map(|(uri, tenant, rps)| Demand { uri, tenant, rps });
    let load = Load::start(demands.collect())?;
    match args.duration {
        Some(duration) => tokio::select! { () = sleep(duration) => {}, () = shutdown.cancelled() => {} },
        None => shutdown.cancelled().await,
    }
    let figures = load.stop().await;
    println!("{}", serde_json::to_string(&figures).context("the figures cannot be written")?);
    Ok(())
}

/// Requests of one tenant for one address: a Poisson process.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    /// What is asked.
    pub(crate) uri: Uri,
    /// On whose behalf.
    pub(crate) tenant: HeaderValue,
    /// Requests/s.
    pub(crate) rps: f64,
}

/// What the callers saw.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// Requests sent.
    pub(crate) sent: u64,
    /// Answered with success.
    pub(crate) served: u64,
    /// Answered with 429.
    pub(crate) refused: u64,
    /// Answered otherwise or not at all.
    pub(crate) failed: u64,
    /// Due, but not sent because too many were under way.
    pub(crate) not_sent: u64,
    /// The 99th percentile of the time to an answer, in milliseconds.
    pub(crate) p99_ms: f64,
    /// The longest time to an answer, in milliseconds.
    pub(crate) max_ms: f64,
}

/// The running load.
pub(crate) struct Load {
    callers: Callers,
    stop: CancellationToken,
}

/// What all requests share.
#[derive(Clone)]
struct Callers {
    client: HttpClient,
    counts: Arc<Counts>,
    in_flight: Arc<Semaphore>,
    requests: TaskTracker,
    /// Microseconds to an answer.
    waits: Arc<Mutex<Histogram<u64>>>,
}

#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    served: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    not_sent: AtomicU64,
}

impl Load {
    /// Starts asking. Must be called on a runtime.
    ///
    /// # Errors
    /// When the histogram of waits cannot be made.
    pub(crate) fn start(demands: Vec<Demand>) -> anyhow::Result<Self> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let callers = Callers {
            client: Client::builder(TokioExecutor::new()).build(connector),
            counts: Arc::default(),
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            requests: TaskTracker::new(),
            waits: Arc::new(Mutex::new(Histogram::new(3)?)),
        };
        let stop = CancellationToken::new();
        for (seed, demand) in (0..).zip(demands) {
            let (callers, stop) = (callers.clone(), stop.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = callers.keep_asking(demand, SmallRng::seed_from_u64(seed)) => {}
                }
            });
        }
        Ok(Self { callers, stop })
    }

    /// What the callers have seen so far.
    pub(crate) fn figures(&self) -> Figures {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.callers.counts;
        let waits = self.callers.waits.lock().unwrap_or_else(PoisonError::into_inner);
        Figures {
            sent: read(&counts.sent),
            served: read(&counts.served),
            refused: read(&counts.refused),
            failed: read(&counts.failed),
            not_sent: read(&counts.not_sent),
            p99_ms: waits.value_at_quantile(0.99) as f64 / 1e3,
            max_ms: waits.max() as f64 / 1e3,
        }
    }

    /// Sends nothing more, waits for the answers that are due, and says what came back in all.
    pub(crate) async fn stop(self) -> Figures {
        self.stop.cancel();
        self.callers.requests.close();
        self.callers.requests.wait().await;
        self.figures()
    }
}

impl Callers {
    /// Sends what is due, every few milliseconds.
    async fn keep_asking(&self, demand: Demand, mut generator: SmallRng) {
        let began = Instant::now();
        let mut ticks = interval(PACE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut next = exponential(&mut generator) / demand.rps;
        loop {
            ticks.tick().await;
            let now = began.elapsed().as_secs_f64();
            while next <= now {
                next += exponential(&mut generator) / demand.rps;
                match Arc::clone(&self.in_flight).try_acquire_owned() {
                    Ok(permit) => self.ask(&demand, permit),
                    Err(_) => {
                        self.counts.not_sent.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }
    }

    fn ask(&self, demand: &Demand, permit: OwnedSemaphorePermit) {
        let request =
            Request::get(demand.uri.clone()).header("x-tenant", demand.tenant.clone()).body(Empty::new());
        let Ok(request) = request else { return };
        let (client, counts, waits) =
            (self.client.clone(), Arc::clone(&self.counts), Arc::clone(&self.waits));
        counts.sent.fetch_add(1, Ordering::Relaxed);
        self.requests.spawn(async move {
            let asked = Instant::now();
            let count = match timeout(ANSWER_TIMEOUT, answer(&client, request)).await {
                Ok(Some(StatusCode::OK)) => &counts.served,
                Ok(Some(StatusCode::TOO_MANY_REQUESTS)) => &counts.refused,
                _ => &counts.failed,
            };
            count.fetch_add(1, Ordering::Relaxed);
            let waited = u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX);
            waits.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(waited);
            drop(permit);
        });
    }
}

/// The status of the answer; `None` when there was none.
async fn answer(client: &HttpClient, request: Request<Empty<Bytes>>) -> Option<StatusCode> {
    let answer = client.request(request).await.ok()?;
    let status = answer.status();
    // The body must be read for the connection to be used again.
    answer.into_body().collect().await.ok()?;
    Some(status)
}

/// A draw from the exponential distribution of mean 1: the gap between independent arrivals.
fn exponential(generator: &mut SmallRng) -> f64 {
    -(1.0 - generator.random::<f64>()).ln()
}
