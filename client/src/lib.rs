//! Tier 1 of Plimsoll, inside a service: decides from cached drop ratios, in nanoseconds, with no network on the
//! request path.
//!
//! A request is decided twice: by a coin, which the drop ratio biases, and, if that lets it pass, by a guard, a token
//! bucket that cuts a surge before the control plane has seen it. In shadow, while killed and outside the canary both
//! decide all the same, and what they would have refused is counted.
//!
//! [`Settings`] makes a [`Limiter`], which the service asks once for each request, and a [`Feed`], which reports what
//! was counted to the zone's aggregator and publishes the directives that come back.
//!
//! ```no_run
//! use plimsoll_client::{Settings, Verdict};
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (limiter, feed) = Settings::new("shop")?.zone("eu-1a")?.aggregator("http://127.0.0.1:7410")?.build()?;
//! let shutdown = CancellationToken::new();
//! feed.spawn(shutdown.clone());
//!
//! let checkout = limiter.bucket("checkout")?;
//! match checkout.admit("acme") {
//!     Verdict::Admit => { /* serve the request */ }
//!     Verdict::Refuse(refusal) => println!("come back in {:?}", refusal.retry_after),
//! }
//! # Ok(()) }
//! ```

mod assignment;
mod builder;
mod cache;
mod feed;
mod hot;
mod interner;
mod limiter;
mod metrics;
#[cfg(feature = "middleware")]
pub mod middleware;
#[cfg_attr(not(feature = "middleware"), allow(dead_code))]
mod responses;
mod subscription;

pub use assignment::endpoints::ENDPOINTS_MAX;
pub use feed::Feed;
pub use limiter::{BucketError, BucketHandle, KEYS_MAX_DEFAULT, KeyHandle, Limiter, Outlook};
pub use metrics::Metrics;
pub use plimsoll_core::quantity::DropRatio;
pub use plimsoll_core::decision::trace::TraceId;
pub use plimsoll_core::decision::{Reason, Refusal, Verdict};
pub use builder::{Settings, SettingsError};
pub use limiter::shard::Shard;
pub use assignment::GRACE;
pub use subscription::Subscription;
