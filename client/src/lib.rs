//! The embedded limiter of Plimsoll, tier 1: admits or refuses requests inside a service, by directives that
//! the control plane keeps up to date, in nanoseconds and with no network call per request.
//!
//! A request is decided in two steps: by a random draw against the drop ratio, and, if admitted, by a guard,
//! a token bucket that cuts a surge before the control plane has seen it. In shadow mode, while killed and
//! outside the canary cohort, both steps still decide, but the refusals are only counted.
//!
//! [`Limiter::builder`] makes a [`Limiter`], which the service calls once for each request, and a [`Feed`],
//! which reports counts to the zone's aggregator and publishes the directives that come back.
//!
//! ```no_run
//! use plimsoll_client::{Limiter, Verdict};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (limiter, feed) = Limiter::builder("shop")?.zone("eu-1a")?.aggregator("http://127.0.0.1:7410")?.build()?;
//! let feed = feed.spawn()?;
//!
//! let checkout = limiter.bucket("checkout")?;
//! match checkout.admit("acme") {
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
//! A process that answers for other services, such as a sidecar, decides by names and learns what was withheld:
//! [`Limiter::decide`] and [`Limiter::decide_together`]. It [records](Limiter::record) the responses that its callers
//! report, states that the others [pass it by](LimiterBuilder::responses_elsewhere), and may divide a canary
//! [by key](CanaryBy::Key).
//!
//! Exact quotas, such as 10,000 requests an hour for each tenant, are asked of a store behind the coin, for what it let
//! through: by the middleware, and by methods such as [`Limiter::decide_with_quotas`]. The feature `quota` has the client
//! of the store, which `LimiterBuilder::quota_store` sets.
//!
//! The features `metrics`, a Prometheus collector, `middleware`, a tower layer, and `tls`, mutual TLS, are on by
//! default.

// The middleware is the only user of some state.
#![cfg_attr(not(feature = "middleware"), allow(dead_code))]

mod builder;
mod feed;
mod hot;
mod interner;
mod limiter;
mod metrics;
#[cfg(feature = "middleware")]
pub mod middleware;
mod responses;
mod setup;
mod subscription;
#[cfg(feature = "testing")]
pub mod testing;

pub use builder::{BuildError, LimiterBuilder, READY_WITHIN_DEFAULT};
pub use feed::{CertificateHealth, Feed, FeedError, FeedHandle, FeedState, Flushed, Health};
pub use hot::decision::COST_MAX;
#[cfg(feature = "quota")]
pub use limiter::quota::{QuotaStore, QuotaStoreError};
pub use limiter::{
    BUCKETS_MAX_DEFAULT, BeforePolicy, BucketError, BucketHandle, BucketStatus, Decided, KEYS_MAX_DEFAULT,
    KeyHandle, KeyRequest, Limiter, ObservedResponse, Peek, ProblemStatus, QuotaLeft, Shard, Status,
};
pub use metrics::Metrics;
pub use plimsoll_core::decision::trace::TraceId;
pub use plimsoll_core::decision::{Reason, Refusal, Verdict};
pub use plimsoll_core::exchange::{InvalidPeerId, PeerId, PeerRole};
pub use plimsoll_core::names::InvalidName;
pub use plimsoll_core::quantity::{DropRatio, InvalidRate};
pub use plimsoll_core::report::Counts;
#[cfg(feature = "tls")]
pub use plimsoll_tls::CertificatesError;
pub use setup::SetupProblem;
pub use subscription::assignment::FAILOVER_DELAY_DEFAULT;
pub use subscription::assignment::endpoints::ENDPOINTS_MAX;
pub use subscription::{CanaryBy, Subscription};

/// The types that [`Limiter::without_transport`] and [`Subscription`] name, for a transport other than [`Feed`]: a
/// simulation, or a process that carries the messages by its own means.
pub mod exchange {
    pub use plimsoll_core::directive::{Directives, StaleDirective};
    pub use plimsoll_core::exchange::Child;
    pub use plimsoll_core::names::{Bucket, Key, Name, Tenant, Zone};
    pub use plimsoll_core::quantity::MonoTime;
    pub use plimsoll_core::report::{Identity, InstanceId, Report, Role};
}

/// The definition of an exact quota, as the policy gives it and directives carry it.
pub mod quota {
    pub use plimsoll_core::quota::{
        InvalidBucketQuotas, InvalidQuota, InvalidQuotaRate, OnStoreError, Quota, QuotaKey, QuotaRate,
    };
}

/// The parser of the directive cache, for fuzzing. Not part of the API.
#[doc(hidden)]
#[allow(missing_docs)]
pub mod parsers {
    use plimsoll_core::report::Identity;

    use crate::Subscription;
    use crate::feed::cache::{Owner, Snapshot};

    /// Puts the first line of a cache file before a body.
    #[must_use]
    pub fn with_checksum(body: &str) -> String {
        crate::feed::cache::with_checksum(body)
    }

    /// Starts a client from a saved text, if it can be read.
    pub fn restore(subscription: &mut Subscription, identity: Identity, text: &str) {
        let owner = Owner { service: identity.service, zone: identity.zone };
        if let Ok((snapshot, _)) = Snapshot::of_text(text, &owner) {
            subscription.restore(snapshot);
        }
    }
}
