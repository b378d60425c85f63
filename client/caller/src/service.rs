//! The calls of a client through the layer: attempts, the waits between them, and their marks.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use tokio::time::{Instant, sleep, timeout_at};
use tower::retry::budget::Budget;
use tower_service::Service;

use crate::asked::{Asked, asked};
use crate::throttle::Throttle;
use crate::{CallError, CallerLayer, Incoming, Outgoing};

/// Number of the attempt from 2, on requests that are sent again.
pub const ATTEMPT: &str = "x-plimsoll-attempt";
/// Number of attempts before this one, as libraries of gRPC send it.
const GRPC_ATTEMPTS: &str = "grpc-previous-rpc-attempts";

/// A client behind a [`CallerLayer`].
#[derive(Clone, Debug)]
pub struct Caller<S> {
    layer: CallerLayer,
    client: S,
}

impl<S> Caller<S> {
    pub(crate) fn new(layer: CallerLayer, client: S) -> Self {
        Self { layer, client }
    }

    /// Sends a request, for clients that are not called as a tower service otherwise.
    ///
    /// # Errors
    /// The client failed in the last attempt, the deadline passed, or the target is throttled.
    pub async fn send<Q>(&self, request: Q) -> Result<S::Response, CallError<S::Error>>
    where
        Q: Outgoing,
        S: Service<Q> + Clone,
        S::Response: Incoming,
    {
        let (layer, client) = (self.layer.clone(), self.client.clone());
        layer.call(client, request).await
    }
}

type Calling<T, E> = Pin<Box<dyn Future<Output = Result<T, CallError<E>>> + Send>>;

impl<Q, S> Service<Q> for Caller<S>
where
    Q: Outgoing,
    S: Service<Q> + Clone + Send + 'static,
    S::Response: Incoming + Send,
    S::Error: Send,
    S::Future: Send,
{
    type Response = S::Response;
    type Error = CallError<S::Error>;
    type Future = Calling<S::Response, S::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // Each attempt waits until a client of its own is ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Q) -> Self::Future {
        Box::pin(self.layer.clone().call(self.client.clone(), request))
    }
}

impl CallerLayer {
    async fn call<Q, S>(self, client: S, request: Q) -> Result<S::Response, CallError<S::Error>>
    where
        Q: Outgoing,
        S: Service<Q> + Clone,
        S::Response: Incoming,
    {
        let started = Instant::now();
        let given = self.deadline.into_iter().chain(request.timeout()).min();
        // A time that is too long to add is no deadline.
        let deadline = given.and_then(|given| Some((given, started.checked_add(given)?)));
        let sent = self.attempts(client, request, deadline.map(|(_, deadline)| deadline));
        match deadline {
            Some((given, deadline)) => match timeout_at(deadline, sent).await {
                Ok(result) => result,
                Err(_) => Err(CallError::deadline_passed(given)),
            },
            None => sent.await,
        }
    }

    async fn attempts<Q, S>(
        &self,
        client: S,
        mut request: Q,
        deadline: Option<Instant>,
    ) -> Result<S::Response, CallError<S::Error>>
    where
        Q: Outgoing,
        S: Service<Q> + Clone,
        S::Response: Incoming,
    {
        let may_repeat = (self.may_repeat)(request.method(), request.path());
        let target = request.host();
        self.budget.deposit();
        let mut retry = 0;
        loop {
            let admits =
                |throttle: &mut Throttle, now| throttle.admits(&target, now, fastrand::f64());
            if self.with_throttle(admits) == Some(false) {
                return Err(CallError::throttled(target));
            }
            let may_retry = may_repeat && retry < self.retries;
            let spare = may_retry.then(|| request.copy()).flatten();
            let mut client = client.clone();
            let attempt = async {
                poll_fn(|context| client.poll_ready(context)).await?;
                client.call(request).await
            };
            let result = attempt.await;
            let asked = match &result {
                Ok(response) => asked(response.status(), response.headers(), SystemTime::now()),
                Err(_) => Asked::Retry(None),
            };
            // A refusal for good brings no retries, so it counts as accepted.
            if !matches!(asked, Asked::Retry(_)) {
                self.with_throttle(|throttle, now| throttle.accepted(&target, now));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let Some((next, wait)) =
                spare.and_then(|next| Some((next, self.wait(asked, retry, left)?)))
            else {
                return result.map_err(CallError::Client);
            };
            request = next;
            retry += 1;
            // The connection is free for others during the wait.
            drop(result);
            sleep(wait).await;
            mark(request.headers_mut(), retry);
            if let Some(left) = left {
                request.set_timeout(left.saturating_sub(wait));
            }
        }
    }

    /// Returns the wait before a retry, paid from the budget; `None` if there may be none.
    fn wait(&self, asked: Asked, retry: u32, left: Option<Duration>) -> Option<Duration> {
        let Asked::Retry(asked) = asked else {
            return None;
        };
        let wait = self.backoff.wait(asked, retry, fastrand::f64())?;
        let is_in_time = left.is_none_or(|left| wait < left);
        (is_in_time && self.budget.withdraw()).then_some(wait)
    }

    fn with_throttle<T>(
        &self,
        ask: impl FnOnce(&mut Throttle, std::time::Instant) -> T,
    ) -> Option<T> {
        let throttle = self.throttle.as_ref()?;
        let mut throttle = throttle.lock().unwrap_or_else(PoisonError::into_inner);
        Some(ask(&mut throttle, Instant::now().into_std()))
    }
}

/// Marks a request that is sent again, so that its server can tell it from a first attempt.
fn mark(headers: &mut HeaderMap, attempts_before: u32) {
    headers.insert(ATTEMPT, HeaderValue::from(attempts_before + 1));
    let content_type = headers.get(CONTENT_TYPE);
    if content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc")) {
        headers.insert(GRPC_ATTEMPTS, HeaderValue::from(attempts_before));
    }
}
