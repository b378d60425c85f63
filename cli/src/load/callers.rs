//! The crowd: a Poisson process for each tenant and address, and what each of its requests came to.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hdrhistogram::Histogram;
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::outcomes::Counts;
use super::{Figures, Outcomes, Schedule};

/// How often requests that are due are sent.
const PACE: Duration = Duration::from_millis(5);
/// Requests under way at most; beyond it a request that is due counts as not sent.
const IN_FLIGHT_MAX: usize = 2_000;

/// The longest wait that is told apart; longer ones count as this long.
const WAIT_US_MAX: u64 = 60_000_000;

type HttpClient = Client<HttpConnector, Empty<Bytes>>;

/// Requests of one tenant for one address: a Poisson process.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    /// What is asked.
    pub(crate) uri: Uri,
    /// On whose behalf.
    pub(crate) tenant: HeaderValue,
    /// How often.
    pub(crate) rates: Schedule,
}

/// The running load.
pub(crate) struct Load {
    began: Instant,
    tenants: BTreeMap<HeaderValue, Arc<Counts>>,
    callers: Callers,
    stop: CancellationToken,
}

/// What all requests share.
#[derive(Clone)]
struct Callers {
    client: HttpClient,
    timeout: Duration,
    in_flight: Arc<Semaphore>,
    requests: TaskTracker,
    /// Microseconds to an answer or to giving up.
    waits: Arc<Mutex<Histogram<u64>>>,
}

impl Load {
    /// Starts asking; callers give up on an answer after `timeout`. Must be called on a runtime.
    ///
    /// # Errors
    /// When the histogram of waits cannot be made.
    pub(crate) fn start(demands: Vec<Demand>, timeout: Duration) -> anyhow::Result<Self> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let callers = Callers {
            client: Client::builder(TokioExecutor::new()).build(connector),
            timeout,
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            requests: TaskTracker::new(),
            waits: Arc::new(Mutex::new(Histogram::new_with_max(WAIT_US_MAX, 3)?)),
        };
        let (began, stop) = (Instant::now(), CancellationToken::new());
        let mut tenants: BTreeMap<HeaderValue, Arc<Counts>> = BTreeMap::new();
        for (seed, demand) in (0..).zip(demands) {
            let counts = Arc::clone(tenants.entry(demand.tenant.clone()).or_default());
            let (callers, stop) = (callers.clone(), stop.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = callers.keep_asking(demand, began, &counts, SmallRng::seed_from_u64(seed)) => {}
                }
            });
        }
        Ok(Self { began, tenants, callers, stop })
    }

    /// How long it has been asking.
    pub(crate) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// What all callers have seen so far.
    pub(crate) fn figures(&self) -> Figures {
        let outcomes = self.tenants.values().map(|counts| counts.read());
        let waits = self.callers.waits.lock().unwrap_or_else(PoisonError::into_inner);
        Figures {
            outcomes: outcomes.fold(Outcomes::default(), |all, tenant| all + tenant),
            p99_ms: waits.value_at_quantile(0.99) as f64 / 1e3,
            max_ms: waits.max() as f64 / 1e3,
        }
    }

    /// What the callers of each tenant have seen so far.
    pub(crate) fn tenants(&self) -> BTreeMap<String, Outcomes> {
        let name = |tenant: &HeaderValue| String::from_utf8_lossy(tenant.as_bytes()).into_owned();
        self.tenants.iter().map(|(tenant, counts)| (name(tenant), counts.read())).collect()
    }

    /// Sends nothing more, and waits for the answers that are due.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.callers.requests.close();
        self.callers.requests.wait().await;
    }
}

impl Callers {
    /// Sends what is due, every few milliseconds, until nothing will be due any more.
    async fn keep_asking(
        &self,
        demand: Demand,
        began: Instant,
        counts: &Arc<Counts>,
        mut generator: SmallRng,
    ) {
        let mut ticks = interval(PACE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut next = demand.rates.due(0.0, exponential(&mut generator));
        while let Some(mut due_s) = next {
            ticks.tick().await;
            let now_s = began.elapsed().as_secs_f64();
            while due_s <= now_s {
                match Arc::clone(&self.in_flight).try_acquire_owned() {
                    Ok(permit) => self.ask(&demand, counts, permit),
                    Err(_) => {
                        counts.not_sent.fetch_add(1, Ordering::Relaxed);
                    }
                }
                next = demand.rates.due(due_s, exponential(&mut generator));
                due_s = next.unwrap_or(f64::INFINITY);
            }
        }
    }

    fn ask(&self, demand: &Demand, counts: &Arc<Counts>, permit: OwnedSemaphorePermit) {
        let request =
            Request::get(demand.uri.clone()).header("x-tenant", demand.tenant.clone()).body(Empty::new());
        let Ok(request) = request else { return };
        let (client, patience) = (self.client.clone(), self.timeout);
        let (counts, waits) = (Arc::clone(counts), Arc::clone(&self.waits));
        counts.sent.fetch_add(1, Ordering::Relaxed);
        self.requests.spawn(async move {
            let asked = Instant::now();
            let count = match timeout(patience, answer(&client, request)).await {
                Ok(Some(StatusCode::OK)) => &counts.served,
                Ok(Some(StatusCode::TOO_MANY_REQUESTS)) => &counts.refused,
                Ok(_) => &counts.failed,
                Err(_) => {
                    counts.timed_out.fetch_add(1, Ordering::Relaxed);
                    &counts.failed
                }
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
