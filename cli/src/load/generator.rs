//! The load generator: a Poisson process of requests for each tenant and URL, and the outcome of each
//! request.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
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
use crate::admin_client::root_cause;

/// The interval at which due requests are sent.
const SEND_EVERY: Duration = Duration::from_millis(5);
/// The largest number of requests that wait for an answer; further due requests count as not sent.
const IN_FLIGHT_MAX: usize = 2_000;

/// The longest wait that the histogram resolves; longer ones count as this long.
const WAIT_US_MAX: u64 = 60_000_000;

type HttpClient = Client<HttpConnector, Empty<Bytes>>;

/// The requests of one tenant for one URL.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    pub(crate) uri: Uri,
    /// The value of the header x-tenant.
    pub(crate) tenant: HeaderValue,
    /// Requests/s over time.
    pub(crate) rates: Schedule,
}

/// A running load.
pub(crate) struct Load {
    started: Instant,
    tenants: BTreeMap<HeaderValue, Arc<Counts>>,
    callers: Callers,
    stop: CancellationToken,
}

/// The state that all requests share.
#[derive(Clone)]
struct Callers {
    client: HttpClient,
    timeout: Duration,
    in_flight: Arc<Semaphore>,
    requests: TaskTracker,
    /// Microseconds to an answer or to the timeout.
    waits: Arc<Mutex<Histogram<u64>>>,
    first_failure: Arc<OnceLock<String>>,
}

impl Load {
    /// Starts sending; callers wait `timeout` for an answer. Must be called on a runtime.
    ///
    /// # Errors
    /// The histogram of waits cannot be allocated.
    pub(crate) fn start(demands: Vec<Demand>, timeout: Duration) -> anyhow::Result<Self> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let callers = Callers {
            client: Client::builder(TokioExecutor::new()).build(connector),
            timeout,
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            requests: TaskTracker::new(),
            waits: Arc::new(Mutex::new(Histogram::new_with_max(WAIT_US_MAX, 3)?)),
            first_failure: Arc::default(),
        };
        let (started, stop) = (Instant::now(), CancellationToken::new());
        let mut tenants: BTreeMap<HeaderValue, Arc<Counts>> = BTreeMap::new();
        for (seed, demand) in (0..).zip(demands) {
            let counts = Arc::clone(tenants.entry(demand.tenant.clone()).or_default());
            let (callers, stop) = (callers.clone(), stop.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = callers.send_due(demand, started, &counts, SmallRng::seed_from_u64(seed)) => {}
                }
            });
        }
        Ok(Self { started, tenants, callers, stop })
    }

    /// The time since the start.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// The outcomes of all requests so far.
    pub(crate) fn figures(&self) -> Figures {
        let outcomes = self.tenants.values().map(|counts| counts.read());
        let waits = self.callers.waits.lock().unwrap_or_else(PoisonError::into_inner);
        Figures {
            outcomes: outcomes.fold(Outcomes::default(), |all, tenant| all + tenant),
            p99_ms: waits.value_at_quantile(0.99) as f64 / 1e3,
            max_ms: waits.max() as f64 / 1e3,
        }
    }

    /// The outcomes so far, by tenant.
    pub(crate) fn tenants(&self) -> BTreeMap<String, Outcomes> {
        let name = |tenant: &HeaderValue| String::from_utf8_lossy(tenant.as_bytes()).into_owned();
        self.tenants.iter().map(|(tenant, counts)| (name(tenant), counts.read())).collect()
    }

    /// The cause of the first failed request, with its URL.
    pub(super) fn first_failure(&self) -> Option<&str> {
        self.callers.first_failure.get().map(String::as_str)
    }

    /// Stops sending, and waits for the outstanding answers.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.callers.requests.close();
        self.callers.requests.wait().await;
    }
}

impl Callers {
    /// Sends the due requests of a demand every few milliseconds, until its schedule ends.
    async fn send_due(&self, demand: Demand, started: Instant, counts: &Arc<Counts>, mut rng: SmallRng) {
        let mut ticks = interval(SEND_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut next = demand.rates.due(0.0, exponential(&mut rng));
        while let Some(mut due_s) = next {
            ticks.tick().await;
            let now_s = started.elapsed().as_secs_f64();
            while due_s <= now_s {
                match Arc::clone(&self.in_flight).try_acquire_owned() {
                    Ok(permit) => self.send(&demand, counts, permit),
                    Err(_) => increment(&counts.not_sent),
                }
                next = demand.rates.due(due_s, exponential(&mut rng));
                due_s = next.unwrap_or(f64::INFINITY);
            }
        }
    }

    fn send(&self, demand: &Demand, counts: &Arc<Counts>, permit: OwnedSemaphorePermit) {
        let request =
            Request::get(demand.uri.clone()).header("x-tenant", demand.tenant.clone()).body(Empty::new());
        let Ok(request) = request else { return };
        let (callers, counts, uri) = (self.clone(), Arc::clone(counts), demand.uri.clone());
        increment(&counts.sent);
        self.requests.spawn(async move {
            let sent = Instant::now();
            let failure = match timeout(callers.timeout, status(&callers.client, request)).await {
                Ok(Ok(StatusCode::OK)) => {
                    increment(&counts.served);
                    None
                }
                Ok(Ok(StatusCode::TOO_MANY_REQUESTS)) => {
                    increment(&counts.refused);
                    None
                }
                Ok(Ok(status)) => Some(status.to_string()),
                Ok(Err(cause)) => Some(cause),
                Err(_) => {
                    increment(&counts.timed_out);
                    Some(format!("no answer within {:?}", callers.timeout))
                }
            };
            if let Some(cause) = failure {
                increment(&counts.failed);
                callers.first_failure.get_or_init(|| format!("{cause} ({uri})"));
            }
            let waited = u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX);
            callers.waits.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(waited);
            drop(permit);
        });
    }
}

fn increment(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// The status of the answer, or the reason why there was none.
async fn status(client: &HttpClient, request: Request<Empty<Bytes>>) -> Result<StatusCode, String> {
    let answer = client.request(request).await.map_err(|error| root_cause(&error))?;
    let status = answer.status();
    // The connection is reused only after the body was read.
    answer.into_body().collect().await.map_err(|error| root_cause(&error))?;
    Ok(status)
}

/// Draws from the exponential distribution of mean 1: the gap between independent arrivals.
fn exponential(rng: &mut SmallRng) -> f64 {
    -(1.0 - rng.random::<f64>()).ln()
}
