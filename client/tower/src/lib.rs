//! The limiter as a tower [`Layer`](tower_layer::Layer), which protects axum, hyper and tonic
//! services without a change in their handlers. The crate exports all of `plimsoll-client`, so that a service
//! depends on one crate.
//!
//! [`Rules`] map requests to buckets and tenants. The first rule that matches applies. A request
//! that no rule matches passes without a limit; [`Rule::otherwise`] gives the rest a bucket, and
//! [`Rule::unlimited`] exempts health checks from it. Requests that pass are counted by
//! [reason](Pass). A path is compared in every way that a handler may read it, so that
//! `/%6Frders/7` does not pass a rule for `/orders/{id}`.
//!
//! | condition | requests |
//! |---|---|
//! | `.path("/orders/{id}")`, `.path("/files/{*rest}")` | paths of a template, in the syntax of axum 0.8 |
//! | `.prefix("/orders")` | `/orders` and all below it, not `/orders2` |
//! | `.exact("/orders")` | this path, taken literally |
//! | `.methods([Method::GET])` | these methods |
//!
//! A rule that could never apply is an error at the start, which names the rule and the remedy: one
//! behind a rule that matches all its requests, a duplicate, or a malformed path. [`Rule::cost`]
//! lets a request count as several. CORS preflights pass, unless [`Rules::limit_preflights`] is
//! set.
//!
//! ```
//! use axum::{Router, routing::get};
//! use http::Method;
//! use plimsoll_tower::{Limiter, PlimsollLayer, Rule, Rules, Tenant};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (limiter, feed) = Limiter::builder("shop").build()?;
//! # #[derive(Clone)] struct Claims { account: String }
//! let rules = Rules::new(
//!     &limiter,
//!     // A layer outside of this one verifies the token. Any caller can send a header.
//!     Tenant::extension(|claims: &Claims| Some(&claims.account)),
//!     [
//!         Rule::bucket("orders-read").prefix("/orders").methods([Method::GET, Method::HEAD]),
//!         Rule::bucket("orders-write").prefix("/orders"),
//!         Rule::unlimited().path("/healthz"),
//!         Rule::otherwise("rest"),
//!     ],
//! )?;
//! let app: Router = Router::new()
//!     .route("/orders/{id}", get(|| async { "an order" }).put(|| async { "changed" }))
//!     .route("/healthz", get(|| async { "ok" }))
//!     .layer(PlimsollLayer::new(rules));
//! # drop((app, feed));
//! # Ok(()) }
//! ```
//!
//! A tonic server needs [`either_body`](PlimsollLayer::either_body), and rules such as
//! `.prefix("/shop.Orders")`. Where rules are not enough, use a function; see
//! [`PlimsollLayer::by`].
//!
//! # Tenants
//!
//! [`Tenant`] reads the tenant from verified claims, an address or a header, or asks a function;
//! [`Tenant::or`] puts sources in order.
//!
//! # Refusals
//!
//! A refused request never reaches the service. An HTTP caller gets 429 or the
//! [status](PlimsollLayer::status) of choice, with `Retry-After`, the
//! [fields about limits](RateLimitHeaders) and a problem document (RFC 9457). A gRPC caller,
//! detected by a content type that begins with `application/grpc`, gets `RESOURCE_EXHAUSTED` with
//! `ErrorInfo`, `grpc-retry-pushback-ms` and, where they apply, `RetryInfo` and `QuotaFailure`. Both are given the
//! [reason](crate::Reason). The time to retry is about as long as the overload is expected to last,
//! and spread at random, so that refused callers do not all return together. A
//! [closure](PlimsollLayer::refuse_with) may respond in another way.
//!
//! # Requests through several services
//!
//! If a bucket's coin is coherent, a request with a `traceparent` header (W3C Trace Context; in
//! gRPC, metadata of that name) is decided by its trace id: a chain of services admits
//! `1 - max(ratio)` of all requests instead of the product. So start traces at the edge, and
//! propagate the header. The layer uses the header as it arrives; a request without one, with
//! several or with a malformed one gets an independent draw.
//!
//! # Recorded responses
//!
//! The layer records the status of every response to a request that it decides, and the duration of
//! admitted requests, by bucket and canary side. The duration runs from the call of the service to its response
//! head. A
//! cancelled request counts with the time until its cancellation, so that hanging requests show.
//! Rollout gates evaluate these figures, and [`Metrics`] has them.
//!
//! A gRPC response counts by its `grpc-status`, mostly in trailers, so once its body has ended. A
//! response counts as aborted if its body is dropped before. UNKNOWN, `DEADLINE_EXCEEDED`,
//! UNIMPLEMENTED, INTERNAL, UNAVAILABLE and `DATA_LOSS` are failures of the service, like the HTTP
//! statuses from 500. Two kinds of responses count by their HTTP status: gRPC-Web, unless its layer
//! is outside of this one, and streams of gRPC without [`either_body`](PlimsollLayer::either_body),
//! unless their body is axum's and the feature `axum` is on.
//!
//! # Layers inside of layers
//!
//! A request that passes two layers for the same bucket, of one limiter, is decided and counted
//! once, by the outer layer. Each thread watches for that in its first 1,000 requests and in one of
//! 256 after them. Once one is found, all threads of the limiter watch every request. The first one of
//! a bucket is logged, and exported as a setup problem, because one of the layers is superfluous. Layers for
//! different buckets both decide. A handler that sends its own requests through a layer makes new
//! requests, and each counts.
//!
//! # Log and spans
//!
//! A refusal is logged as an event with the target `plimsoll` and the level `WARN`: `bucket`,
//! `reason`, `retry_after_s` and `suppressed_refusals`, the number of refusals since the last
//! event. A bucket has at most one event in ten seconds, so a flood of requests is no flood of
//! lines. Each decision is recorded in the current span if that declares the fields, as one of
//! `tower_http` can with the layer outside of this one:
//!
//! ```
//! use tower_http::trace::TraceLayer;
//! use tracing::field::Empty;
//!
//! let trace = TraceLayer::new_for_http().make_span_with(|request: &http::Request<axum::body::Body>| {
//!     tracing::info_span!("request", method = %request.method(), path = request.uri().path(),
//!         plimsoll.verdict = Empty, plimsoll.bucket = Empty, plimsoll.reason = Empty)
//! });
//! # let _: axum::Router = axum::Router::new().layer(trace);
//! ```
//!
//! The verdict is `admitted`, `refused`, or `passed` for a request without a decision.
//!
//! # Order of layers
//!
//! Put the layer outside of costly layers, and inside of authentication. It passes readiness
//! through: a request waits until the inner service is ready before it can be refused, so a
//! concurrency limit belongs inside only if it refuses instead of waiting. Paths are compared as
//! the layer sees them: after a router that strips a prefix without that prefix, and with the
//! feature `axum` also with it. A layer that rewrites paths, such as one that trims slashes,
//! belongs outside.
//!
//! # Cost
//!
//! The layer allocates nothing for an admitted request without exact quotas whose path is plain, or
//! has few readings of 1,024 bytes together, except for the mark of the first 1,000 requests of a
//! thread and of one in 256 after them, and for the text of a setup problem. Threads share no counter while there are at most about twice
//! as many as cores. axum clones and boxes the service of every `Router::layer` for
//! each request, which costs more than the layer; a layer around the whole router is free of that:
//!
//! ```
//! # use axum::{Router, ServiceExt, extract::Request};
//! # use plimsoll_tower::PlimsollLayer;
//! # use tokio::net::TcpListener;
//! # use tower::Layer;
//! # async fn serve(listener: TcpListener, router: Router, layer: PlimsollLayer) -> std::io::Result<()> {
//! let service = layer.layer(router.with_state(()));
//! axum::serve(listener, ServiceExt::<Request>::into_make_service(service)).await
//! # }
//! ```

mod decide;
mod events;
mod layer;
#[cfg(doctest)]
mod misuse;
mod refusal;
mod request;
mod response;
mod rules;
mod service;
mod stacked;
mod tenant;

pub use layer::PlimsollLayer;
pub use plimsoll_client::internals::Pass;
pub use plimsoll_client::*;
pub use refusal::{
    ERROR_DOMAIN, RateLimitHeaders, RefusalFormat, RefusalOf, Refused, quota_fields,
};
pub use request::Head;
pub use response::{EitherBody, PlimsollBody, ResponseBody, SameBody};
pub use rules::{KEYS_MAX, PathFault, Rule, Rules, RulesError};
pub use service::{PlimsollService, ResponseFuture, Spare};
pub use tenant::{Tenant, TenantError};
