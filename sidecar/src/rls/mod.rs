//! Envoy's rate limit service, version 3: descriptors become keys by the rules, and are decided together.

mod counters;
mod decision;
mod grpc;
mod input;
mod lossy;
mod messages;
mod refusal;
mod response;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;
use tonic::Status;

pub(crate) use self::counters::Counters;
pub(crate) use self::grpc::Reply;

use crate::limits::Limits;
use crate::serve::read_within;
use decision::Deciders;
use grpc::BODY_BYTES_MAX;
use input::InputError;

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";
/// Method of the standard health service that sends each change.
const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";
/// Framed message `HealthCheckResponse { status: SERVING }`.
const SERVING: &[u8] = &[0, 0, 0, 0, 2, 8, 1];
/// Maximum characters of an unknown method in an error.
const QUOTED_MAX: usize = 128;

/// Rate limit service. Clones share the state.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    limits: Limits,
    counters: Arc<Counters>,
    closing: CancellationToken,
}

impl Service {
    /// Serves the decisions of this limiter. Streams that stay open end when `closing` is
    /// cancelled.
    pub(crate) fn new(limits: Limits, closing: CancellationToken) -> Self {
        Self {
            limits,
            counters: Arc::default(),
            closing,
        }
    }

    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Answers a request of this service or of the health service. Counts errors, and logs the first of
    /// each reason.
    pub(crate) async fn answer(self, request: Request<Incoming>) -> Response<Reply> {
        let is_grpc = request
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|of| of.as_bytes().starts_with(b"application/grpc"));
        if !is_grpc || request.method() != Method::POST {
            let mut response = Response::new(Reply::default());
            *response.status_mut() = if is_grpc {
                StatusCode::METHOD_NOT_ALLOWED
            } else {
                StatusCode::UNSUPPORTED_MEDIA_TYPE
            };
            return response;
        }
        self.call(request).await.unwrap_or_else(|error| {
            self.counters.on_rejected(&error);
            tracing::debug!(%error, "rate limit request not decided");
            grpc::failed(Status::from(&error))
        })
    }

    async fn call(&self, request: Request<Incoming>) -> Result<Response<Reply>, InputError> {
        match request.uri().path() {
            SHOULD_RATE_LIMIT => {
                let body = read_within(request.into_body(), BODY_BYTES_MAX).await?;
                self.decide(&body).await
            }
            HEALTH_CHECK => Ok(grpc::answered_with(Bytes::from_static(SERVING))),
            HEALTH_WATCH => Ok(grpc::open(
                Bytes::from_static(SERVING),
                self.closing.clone(),
            )),
            other => Err(InputError::Method(other.chars().take(QUOTED_MAX).collect())),
        }
    }

    async fn decide(&self, body: &[u8]) -> Result<Response<Reply>, InputError> {
        let request = lossy::decode(grpc::unframed(body)?)?;
        input::check(&request)?;
        let in_force = self.limits.in_force();
        let (limiter, rules) = (self.limits.limiter(), &in_force.rules);
        let decisions = Deciders {
            limiter,
            rules,
            counters: &self.counters,
            wiring: &in_force.rls,
        }
        .decide(&request)
        .await;
        let (response, more) = response::of(&decisions, SystemTime::now);
        Ok(grpc::answered(&response, &more))
    }
}
