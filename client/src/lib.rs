//! The embedded limiter of Plimsoll, tier 1: admits or refuses requests inside a service, by directives that
//! the control plane keeps up to date, in nanoseconds and with no network call per request.
//!
//! A request is decided in two steps: by a random draw against the drop ratio, and, if admitted, by a guard,
//! a token bucket that cuts a surge before the control plane has seen it. In shadow mode, while killed and
//! outside the canary cohort, both steps still decide, but the refusals are only counted.
//!
//! A service builds a [`Limiter`] and asks it about each [`Request`]: by [`Limiter::check`] in memory, and by
//! [`Limiter::check_async`] where exact quotas or a wait for admission need it. A feed in the background reports
//! counts to the zone's aggregators and publishes the directives that they return.
//!
//! ```no_run
//! use plimsoll_client::{Limiter, Request, Verdict};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (limiter, feed) = Limiter::builder("shop").zone("eu-1a").aggregator("http://127.0.0.1:7410").build()?;
//!
//! let checkout = limiter.bucket("checkout")?;
//! match limiter.check(&Request::new(&checkout, "acme")) {
//!     Verdict::Admit => { /* serve the request */ }
//!     Verdict::Refuse(refusal) => println!("retry in {:?}", refusal.retry_after()),
//! }
//! // After the last request: reports the last decisions.
//! feed.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! Aggregators on other machines are reached over mutual TLS, with the certificate of the service, by
//! [`LimiterBuilder::certificates`] and addresses `https://`. A certificate that has expired stops no service:
//! the limiter decides by the directives that it holds, and [`Limiter::health`] shows why no new ones arrive.
//!
//! A process that answers for other services [records](Limiter::record) the responses that its callers
//! report, states that the others [pass it by](LimiterBuilder::responses_elsewhere), and may divide a canary
//! [by key](CanaryBy::Key).
//!
//! The features `prometheus`, a collector, and `tls`, mutual TLS, are on by default. With `quota` a limiter can
//! ask a store of exact quotas. The crate `plimsoll-tower` has a limiter as a layer of axum, hyper and tonic.

// Some items have no user without the internals, others none without quotas.
#![cfg_attr(
    not(all(feature = "internals", feature = "quota")),
    allow(dead_code, unreachable_pub, unused_imports)
)]

mod builder;
mod feed;
mod hot;
#[cfg(feature = "internals")]
#[doc(hidden)]
#[allow(missing_docs)]
pub mod internals;
mod limiter;
mod metrics;
mod responses;
mod setup;
mod subscription;
#[cfg(feature = "testing")]
pub mod testing;

pub use builder::{BuildError, LimiterBuilder, READY_WITHIN_DEFAULT};
pub use feed::{CertificateHealth, Feed, FeedError, FeedHandle, FeedState, Flushed, Health};
pub use hot::decision::{COST_MAX, Peek};
pub use hot::table::BUCKETS_MAX_DEFAULT;
#[cfg(feature = "quota")]
pub use limiter::quota::{QuotaStore, QuotaStoreError};
pub use limiter::{
    BeforePolicy, BucketError, BucketHandle, BucketRef, BucketStatus, KEYS_MAX_DEFAULT, Limiter,
    ProblemStatus, QuotaLeft, Request, Status, TenantLimit,
};
pub use metrics::Metrics;
pub use plimsoll_core::decision::trace::TraceId;
pub use plimsoll_core::decision::{Reason, Refusal, Verdict};
pub use plimsoll_core::directive::LimitOwner;
pub use plimsoll_core::exchange::{InvalidPeerId, PeerId, PeerRole};
pub use plimsoll_core::names::InvalidName;
pub use plimsoll_core::quantity::{DropRatio, InvalidRate};
#[cfg(feature = "tls")]
pub use plimsoll_tls::CertificatesError;
pub use responses::ObservedResponse;
pub use setup::SetupProblem;
pub use subscription::CanaryBy;
pub use subscription::assignment::FAILOVER_DELAY_DEFAULT;
pub use subscription::assignment::endpoints::ENDPOINTS_MAX;

/// The definition of an exact quota, as the policy gives it and directives carry it.
pub mod quota {
    pub use plimsoll_core::quota::{
        InvalidBucketQuotas, InvalidQuota, InvalidQuotaRate, OnStoreError, Quota, QuotaKey,
        QuotaRate,
    };
}
