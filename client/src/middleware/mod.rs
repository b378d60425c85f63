//! The limiter as a tower [`Layer`](tower_layer::Layer), so that axum, hyper and tonic services are protected without
//! a line in their own code.
//!
//! [`Rules`] say which requests ask which bucket, and on whose behalf. The first rule that matches holds; a request
//! that no rule matches passes, unlimited and uncounted, so a health check needs no exception.
//!
//! ```
//! use axum::{Router, routing::get};
//! use http::Method;
//! use plimsoll_client::Limiter;
//! use plimsoll_client::middleware::{LoadShedLayer, Rule, Rules, Tenant};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (limiter, feed) = Limiter::builder("shop")?.zone("eu-1a")?.aggregator("http://127.0.0.1:7410")?.build()?;
//! let rules = Rules::new(
//!     &limiter,
//!     Tenant::header("x-tenant")?,
//!     [
//!         Rule::bucket("orders-read").path("/orders/*").methods([Method::GET, Method::HEAD]),
//!         Rule::bucket("orders-write").path("/orders/*"),
//!     ],
//! )?;
//! let app: Router = Router::new()
//!     .route("/orders/{id}", get(|| async { "an order" }).put(|| async { "changed" }))
//!     .route("/healthz", get(|| async { "ok" }))
//!     .layer(LoadShedLayer::new(rules));
//! # drop((app, feed));
//! # Ok(()) }
//! ```
//!
//! A tonic server takes the same layer: `Server::builder().layer(LoadShedLayer::new(rules))`, with paths such as
//! `/shop.Orders/*`. Where rules do not reach, a closure does; see [`Extract`].
//!
//! # What a refused caller hears
//!
//! A refused request never reaches the service. To an HTTP caller the answer is 429 with `Retry-After`,
//! `X-RateLimit-Reason: cluster_overload` and a problem document (RFC 9457); to a gRPC caller, told by a content type
//! that begins with `application/grpc`, it is `RESOURCE_EXHAUSTED` with `RetryInfo`, `QuotaFailure`, `ErrorInfo` and
//! `grpc-retry-pushback-ms`. The wait carries jitter, so that refused callers do not all return at once.
//!
//! # Requests that pass several services
//!
//! Where a bucket's coin is coherent, a request that carries a `traceparent` header (W3C Trace Context; in gRPC it is
//! metadata of that name) is decided by its trace-id: services that it passes one after the other admit `1 - max(ratio)` of
//! all, and not the product. So let whatever stands at the edge begin traces, and pass the header on. The layer goes by the
//! header as it arrives; a request without one, with several or with one that breaks the rules gets a draw of its own.
//!
//! # What is watched
//!
//! The layer counts how requests end and how long those take that it lets through, by bucket and side of the canary: from
//! when the service is called to when it answers, the body apart. A request whose caller goes away counts with the time it
//! took until then, or those that hang would not be seen at all. The gates of a rollout judge by it, and
//! [`Metrics`](crate::Metrics) show it. What a gRPC service answers counts by its HTTP status.
//!
//! # Where to put it
//!
//! Outside of whatever is costly, and inside of whatever says who the caller is. The layer passes readiness through:
//! a request waits for the service inside to be ready before it can be refused, so limits on concurrency belong
//! inside only if they refuse rather than wait. Paths are compared as the layer sees them: a router that strips
//! a prefix strips it here as well.

mod extract;
mod layer;
mod refusal;
mod rules;
mod service;
mod tenant;
mod timing;
mod trace;

pub use extract::{Decision, Extract};
pub use layer::LoadShedLayer;
pub use refusal::{ERROR_DOMAIN, PROBLEM_TYPE};
pub use rules::{Rule, Rules, RulesError};
pub use service::{LoadShed, ResponseFuture};
pub use tenant::Tenant;
