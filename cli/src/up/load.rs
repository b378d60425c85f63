//! Open-loop load over real HTTP: requests leave when they are due, whether or not earlier ones were answered, as a
//! crowd of independent callers would send them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::fleet::Fleet;

/// How much more than its limit is asked of a bucket.
const OVERLOAD: f64 = 3.5;
/// What is asked of a bucket without a limit, in requests/s.
const UNLIMITED_RPS: f64 = 300.0;
/// What is asked of everything together at most, in requests/s: the machine should not be the limit.
const TOTAL_RPS_MAX: f64 = 8_000.0;
/// Who asks, and their share of the requests. The last two have no entry in the example policy.
const TENANTS: [(&str, f64); 4] =
    [("enterprise_acme", 0.4), ("free_tier", 0.3), ("corner-shop", 0.2), ("book-club", 0.1)];
/// How often requests that are due are sent.
const PACE: Duration = Duration::from_millis(5);
/// Requests under way at most; beyond it a request that is due counts as not sent.
const IN_FLIGHT_MAX: usize = 2_000;
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

type HttpClient = Client<HttpConnector, Empty<Bytes>>;

/// The running load.
pub(super) struct Load {
    counts: Arc<Counts>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// What the callers saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Figures {
    /// Requests sent.
    pub(super) sent: u64,
    /// Answered with success.
    pub(super) served: u64,
    /// Answered with 429.
    pub(super) refused: u64,
    /// Answered otherwise or not at all.
    pub(super) failed: u64,
    /// Due, but not sent because too many were under way.
    pub(super) not_sent: u64,
}

#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    served: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    not_sent: AtomicU64,
}

/// Requests of one tenant for one bucket at one service, as a Poisson process.
struct Stream {
    uri: Uri,
    tenant: &'static str,
    rps: f64,
    /// Requests due but not yet sent.
    next: f64,
}

impl Load {
    /// Starts asking every bucket of the fleet for more than it may admit.
    pub(super) fn start(fleet: &Fleet) -> anyhow::Result<Self> {
        let demands = demands(fleet);
        let load = Self { counts: Arc::default(), stop: CancellationToken::new(), tasks: TaskTracker::new() };
        let in_flight = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
        for (number, (service, share)) in fleet.services().iter().enumerate() {
            let streams = streams(*service, *share, &demands)?;
            let mut connector = HttpConnector::new();
            connector.set_nodelay(true);
            let client = Client::builder(TokioExecutor::new()).build(connector);
            let generator = SmallRng::seed_from_u64(number as u64);
            let pace = pace(
                streams,
                client,
                generator,
                Arc::clone(&load.counts),
                Arc::clone(&in_flight),
                load.stop.clone(),
                load.tasks.clone(),
            );
            load.tasks.spawn(pace);
        }
        load.tasks.close();
        Ok(load)
    }

    /// What the callers have seen so far.
    pub(super) fn figures(&self) -> Figures {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        Figures {
            sent: read(&counts.sent),
            served: read(&counts.served),
            refused: read(&counts.refused),
            failed: read(&counts.failed),
            not_sent: read(&counts.not_sent),
        }
    }

    /// Sends nothing more and waits for the answers that are due.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

/// What to ask of each bucket, in requests/s.
fn demands(fleet: &Fleet) -> Vec<(String, f64)> {
    let status = fleet.status();
    let mut demands: Vec<(String, f64)> = Vec::new();
    for bucket in fleet.buckets() {
        let known = status.buckets.get(bucket.as_str());
        let limit = known.and_then(|bucket| bucket.limit_rps);
        demands.push((bucket.clone(), limit.map_or(UNLIMITED_RPS, |limit| (limit * OVERLOAD).max(1.0))));
    }
    let total: f64 = demands.iter().map(|(_, rps)| rps).sum();
    let scale = (TOTAL_RPS_MAX / total).min(1.0);
    demands.iter_mut().for_each(|(_, rps)| *rps *= scale);
    demands
}

fn streams(service: SocketAddr, share: f64, demands: &[(String, f64)]) -> anyhow::Result<Vec<Stream>> {
    let mut streams = Vec::new();
    for (bucket, rps) in demands {
        let uri: Uri =
            format!("http://{service}/{bucket}").parse().with_context(|| format!("bucket {bucket}"))?;
        for (tenant, of_requests) in TENANTS {
            streams.push(Stream { uri: uri.clone(), tenant, rps: rps * share * of_requests, next: 0.0 });
        }
    }
    Ok(streams)
}

/// Sends what is due, every few milliseconds.
async fn pace(
    mut streams: Vec<Stream>,
    client: HttpClient,
    mut generator: SmallRng,
    counts: Arc<Counts>,
    in_flight: Arc<Semaphore>,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    let began = Instant::now();
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let now = began.elapsed().as_secs_f64();
        for stream in &mut streams {
            while stream.next <= now {
                stream.next += exponential(&mut generator) / stream.rps;
                let Ok(permit) = Arc::clone(&in_flight).try_acquire_owned() else {
                    counts.not_sent.fetch_add(1, Ordering::Relaxed);
                    continue;
                };
                let request =
                    Request::get(stream.uri.clone()).header("x-tenant", stream.tenant).body(Empty::new());
                let Ok(request) = request else { continue };
                let (client, counts) = (client.clone(), Arc::clone(&counts));
                tasks.spawn(async move {
                    counts.sent.fetch_add(1, Ordering::Relaxed);
                    let count = match timeout(ANSWER_TIMEOUT, ask(&client, request)).await {
                        Ok(Some(StatusCode::OK)) => &counts.served,
                        Ok(Some(StatusCode::TOO_MANY_REQUESTS)) => &counts.refused,
                        _ => &counts.failed,
                    };
                    count.fetch_add(1, Ordering::Relaxed);
                    drop(permit);
                });
            }
        }
    }
}

/// One request; `None` when there was no answer.
async fn ask(client: &HttpClient, request: Request<Empty<Bytes>>) -> Option<StatusCode> {
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
