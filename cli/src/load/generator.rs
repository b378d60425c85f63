//! The load generator: requests for each tenant and URL at their arrivals, and the outcome of each
//! request.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hdrhistogram::Histogram;
use http::{HeaderValue, Request, Response, StatusCode, Uri};
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
use tower::service_fn;

use super::caller::{Caller, Failure};
use super::schedule::{Arrivals, Schedule};
use super::summary::{Figures, Outcomes, Summary};
use crate::admin_client::root_cause;

/// Interval of sending due requests.
const SEND_EVERY: Duration = Duration::from_millis(5);
/// Maximum number of requests that wait for an answer or a retry; more due requests count as not sent.
const IN_FLIGHT_MAX: usize = 5_000;

/// Maximum wait in the histogram; longer waits count as this long.
const WAIT_US_MAX: u64 = 60_000_000;

type HttpClient = Client<HttpConnector, Empty<Bytes>>;

/// The requests of one tenant to one URL.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    pub(crate) uri: Uri,
    /// Value of the header x-tenant.
    pub(crate) tenant: HeaderValue,
    /// Value of the header x-plan.
    pub(crate) plan: Option<HeaderValue>,
    /// Number of users of the tenant, if the header names users.
    pub(crate) names: Option<NonZeroU64>,
    /// Requests/s over time.
    pub(crate) rates: Schedule,
}

impl Demand {
    /// Returns the header x-tenant of the next request.
    fn caller(&self, rng: &mut SmallRng) -> HeaderValue {
        let Some(names) = self.names else {
            return self.tenant.clone();
        };
        let user = format!("-{}", rng.random_range(0..names.get()));
        let name = [self.tenant.as_bytes(), user.as_bytes()].concat();
        HeaderValue::try_from(name).unwrap_or_else(|_| self.tenant.clone())
    }
}

/// A running load, which ends with [`Load::stop`] or its schedules and not on drop.
pub(crate) struct Load {
    started: Instant,
    seed: u64,
    callers: Callers,
    stop: CancellationToken,
}

/// What the requests of all demands share.
#[derive(Clone)]
struct Callers {
    client: HttpClient,
    caller: Caller,
    timeout: Duration,
    in_flight: Arc<Semaphore>,
    requests: TaskTracker,
    results: Arc<Mutex<Results>>,
}

struct Results {
    tenants: BTreeMap<HeaderValue, Outcomes>,
    /// Microseconds from the first attempt to the last answer, failure or timeout.
    waits: Histogram<u64>,
    /// Cause of the first failed request, with its URL.
    first_failure: Option<String>,
    /// True once any request was answered.
    answered: bool,
}

impl Load {
    /// Starts sending, at moments that `seed` determines; callers wait `timeout` for an answer, with each attempt.
    /// Must be called on a runtime.
    ///
    /// # Errors
    /// The histogram of waits cannot be allocated.
    pub(crate) fn start(
        demands: Vec<Demand>,
        caller: Caller,
        timeout: Duration,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let tenants = demands
            .iter()
            .map(|demand| (demand.tenant.clone(), Outcomes::default()))
            .collect();
        let waits = Histogram::new_with_max(WAIT_US_MAX, 3)?;
        let callers = Callers {
            client: Client::builder(TokioExecutor::new()).build(connector),
            caller,
            timeout,
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            requests: TaskTracker::new(),
            results: Arc::new(Mutex::new(Results {
                tenants,
                waits,
                first_failure: None,
                answered: false,
            })),
        };
        let (started, stop) = (Instant::now(), CancellationToken::new());
        let mut seeds = SmallRng::seed_from_u64(seed);
        for demand in demands {
            let (callers, stop, rng) = (
                callers.clone(),
                stop.clone(),
                SmallRng::from_rng(&mut seeds),
            );
            tokio::spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = callers.send_due(demand, started, rng) => {}
                }
            });
        }
        Ok(Self {
            started,
            seed,
            callers,
            stop,
        })
    }

    pub(crate) fn summary(&self) -> Summary {
        let results = self.callers.results();
        let name = |tenant: &HeaderValue| String::from_utf8_lossy(tenant.as_bytes()).into_owned();
        Summary {
            at_s: self.started.elapsed().as_secs_f64(),
            all: Figures {
                outcomes: results
                    .tenants
                    .values()
                    .fold(Outcomes::default(), |all, tenant| all + *tenant),
                p99_ms: results.waits.value_at_quantile(0.99) as f64 / 1e3,
                max_ms: results.waits.max() as f64 / 1e3,
            },
            tenants: results
                .tenants
                .iter()
                .map(|(tenant, outcomes)| (name(tenant), *outcomes))
                .collect(),
            first_failure: results.first_failure.clone(),
            answered: results.answered,
            seed: self.seed,
        }
    }

    /// Stops sending, and waits for the outstanding answers.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.callers.requests.close();
        self.callers.requests.wait().await;
    }
}

impl Callers {
    fn results(&self) -> MutexGuard<'_, Results> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the due requests of a demand every few milliseconds, until its schedule ends.
    async fn send_due(&self, demand: Demand, started: Instant, mut rng: SmallRng) {
        let mut ticks = interval(SEND_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut arrivals =
            Arrivals::new(demand.rates.clone(), SmallRng::from_rng(&mut rng)).peekable();
        while arrivals.peek().is_some() {
            ticks.tick().await;
            let now_s = started.elapsed().as_secs_f64();
            while arrivals.next_if(|due_s| *due_s <= now_s).is_some() {
                match Arc::clone(&self.in_flight).try_acquire_owned() {
                    Ok(permit) => self.send(&demand, demand.caller(&mut rng), permit),
                    Err(_) => self.results().of(&demand.tenant).not_sent += 1,
                }
            }
        }
    }

    fn send(&self, demand: &Demand, caller: HeaderValue, permit: OwnedSemaphorePermit) {
        let request = Request::get(demand.uri.clone())
            .header("x-tenant", caller)
            .body(Empty::new());
        let Ok(mut request) = request else { return };
        if let Some(plan) = &demand.plan {
            request.headers_mut().insert("x-plan", plan.clone());
        }
        let (callers, tenant, uri) = (self.clone(), demand.tenant.clone(), demand.uri.clone());
        self.results().of(&tenant).sent += 1;
        self.requests.spawn(async move {
            let _permit = permit;
            let sent = Instant::now();
            let attempt = service_fn(|request| callers.attempt(&tenant, request));
            let answer = callers.caller.send(attempt, request).await;
            let waited = u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX);
            let mut results = callers.results();
            results.waits.saturating_record(waited);
            results.answered |= answer.is_ok();
            let outcomes = results.of(&tenant);
            let cause = match answer.map(|answer| answer.status()) {
                Ok(StatusCode::OK) => return outcomes.served += 1,
                Ok(StatusCode::TOO_MANY_REQUESTS) => return outcomes.refused += 1,
                Ok(status) => status.to_string(),
                Err(Failure::Failed(cause)) => cause,
                Err(Failure::TimedOut) => {
                    outcomes.timed_out += 1;
                    format!("no answer within {:?}", callers.timeout)
                }
            };
            outcomes.failed += 1;
            results
                .first_failure
                .get_or_insert_with(|| format!("{cause} ({uri})"));
        });
    }

    /// Sends a request once, and returns the head of the answer.
    async fn attempt(
        &self,
        tenant: &HeaderValue,
        request: Request<Empty<Bytes>>,
    ) -> Result<Response<()>, Failure> {
        self.results().of(tenant).attempts += 1;
        let answer = timeout(self.timeout, answer(&self.client, request)).await;
        let answer = answer.map_err(|_| Failure::TimedOut)?;
        answer.map_err(Failure::Failed)
    }
}

impl Results {
    fn of(&mut self, tenant: &HeaderValue) -> &mut Outcomes {
        self.tenants.entry(tenant.clone()).or_default()
    }
}

/// Returns the head of the answer, or the reason why there was none.
async fn answer(
    client: &HttpClient,
    request: Request<Empty<Bytes>>,
) -> Result<Response<()>, String> {
    let answer = client
        .request(request)
        .await
        .map_err(|error| root_cause(&error))?;
    let (head, body) = answer.into_parts();
    // The connection is reused only after the body was read.
    body.collect().await.map_err(|error| root_cause(&error))?;
    Ok(Response::from_parts(head, ()))
}
