//! Retries of the load generator after a refusal or a loss: polite ones, through the layer for callers, or rude ones, as
//! many callers send them.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use plimsoll_caller::{ATTEMPT, CallError, CallerLayer};
use tokio::time::sleep;
use tower::{Layer, Service};

/// Wait before the first retry, which doubles with each.
const BACKOFF: Duration = Duration::from_millis(50);
/// Maximum wait of a polite caller.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Doublings of the wait of a rude caller.
const DOUBLINGS_MAX: u32 = 10;

/// The manners of callers with retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Manners {
    /// Wait as asked, with jitter, and retry at most one in ten requests
    #[default]
    Polite,
    /// Retry after 50 ms, 100 ms and so on, whatever was asked
    Rude,
}

/// Why a request had no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    TimedOut,
    Failed(String),
}

/// Callers who share their retry budget.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    manners: Manners,
    retries: u32,
    layer: CallerLayer,
}

impl Caller {
    pub(crate) fn new(manners: Manners, retries: u32) -> Self {
        let layer = CallerLayer::default().retries(retries);
        Self {
            manners,
            retries,
            layer: layer.backoff(BACKOFF, WAIT_MAX),
        }
    }

    /// Sends a request, again if need be, and returns the last answer.
    pub(super) async fn send<S>(
        &self,
        mut service: S,
        mut request: Request<Empty<Bytes>>,
    ) -> Result<Response<()>, Failure>
    where
        S: Service<Request<Empty<Bytes>>, Response = Response<()>, Error = Failure> + Clone,
    {
        if self.manners == Manners::Polite {
            let answer = self.layer.layer(service).send(request).await;
            return answer.map_err(|error| match error {
                CallError::Client(failure) => failure,
                // The layer does not throttle, so a deadline has passed.
                _ => Failure::TimedOut,
            });
        }
        let mut retry = 0;
        loop {
            let answer = service.call(request.clone()).await;
            let is_served = matches!(&answer, Ok(answer) if answer.status() == StatusCode::OK);
            if is_served || retry >= self.retries {
                return answer;
            }
            sleep(BACKOFF * (1 << retry.min(DOUBLINGS_MAX))).await;
            retry += 1;
            request.headers_mut().insert(ATTEMPT, (retry + 1).into());
        }
    }
}

#[cfg(test)]
mod tests;
