//! Limiters for the tests of a service: they refuse what the test chooses, without an aggregator, a
//! network or a clock. For the feature `testing`, in the `dev-dependencies` of a service.
//!
//! A [`ControlPlane`] stands in for aggregator and controller. The service gets its
//! [`limiter`](ControlPlane::limiter), which is the real one: decisions, middleware, counts and
//! refusals are the same as in production. The test sets rules by bucket while the service runs.
//!
//! # Refuse
//!
//! ```
//! use plimsoll_client::testing::ControlPlane;
//! use plimsoll_client::{Reason, Request, Verdict};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let plane = ControlPlane::new(7);
//! plane.refuse("orders", Reason::TenantLimit)?;
//! let limiter = plane.limiter();
//! let Verdict::Refuse(refusal) = limiter.check(&Request::new("orders", "acme")) else { panic!("admitted") };
//! assert_eq!(refusal.reason(), Reason::TenantLimit);
//! assert!(limiter.check(&Request::new("search", "acme")).is_admit());
//!
//! plane.refuse_all(Reason::ClusterOverload); // every bucket without a rule of its own, now and later
//! assert!(!limiter.check(&Request::new("search", "acme")).is_admit());
//! # Ok(()) }
//! ```
//!
//! # A drop ratio and a seed
//!
//! ```
//! use plimsoll_client::Request;
//! use plimsoll_client::testing::ControlPlane;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let verdicts = |seed| -> Result<Vec<bool>, Box<dyn std::error::Error>> {
//!     let plane = ControlPlane::new(seed);
//!     plane.drop_share("orders", 0.3)?;
//!     let limiter = plane.limiter();
//!     Ok((0..100).map(|_| limiter.check(&Request::new("orders", "acme")).is_admit()).collect())
//! };
//! assert_eq!(verdicts(7)?, verdicts(7)?);
//! assert_ne!(verdicts(7)?, verdicts(8)?);
//! # Ok(()) }
//! ```
//!
//! The draws of one limiter form one sequence, and the seed determines it: the n-th decision that
//! needs a draw gets the n-th draw, through [`Limiter`](crate::Limiter) and middleware, on any
//! threads. A test that sends the same requests in the same order gets the same verdicts in each
//! run. Concurrent requests take draws in the order in which they are decided.
//! The wait that a refusal names because the quota store failed, or after a wait for capacity, does not follow the seed.
//!
//! # A limit under a virtual clock
//!
//! ```
//! use std::time::Duration;
//! use plimsoll_client::Request;
//! use plimsoll_client::testing::{ControlPlane, Decisions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let plane = ControlPlane::new(7);
//! plane.limit("orders", 100.0)?; // requests/s
//! let limiter = plane.limiter();
//! let admitted = |n: usize| (0..n).filter(|_| limiter.check(&Request::new("orders", "acme")).is_admit()).count();
//! assert_eq!(admitted(150), 100); // a second's worth is there at the start
//! plane.advance(Duration::from_millis(250)); // nothing sleeps
//! assert_eq!(admitted(150), 25);
//! assert_eq!(plane.counts("orders")?, Decisions { offered: 300, admitted: 125, refused: 175, would_refuse: 0 });
//!
//! plane.shadow("orders", true)?; // count only
//! assert_eq!(admitted(10), 10);
//! assert_eq!(plane.counts("orders")?.would_refuse, 10);
//! # Ok(()) }
//! ```
//!
//! # An exact quota
//!
//! ```
//! use std::time::Duration;
//! use plimsoll_client::testing::ControlPlane;
//! use plimsoll_client::{Reason, Request, Verdict};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let plane = ControlPlane::new(7);
//! plane.quota("orders", 2, Duration::from_secs(3_600))?; // 2 requests an hour for each tenant
//! let limiter = plane.limiter();
//! let (acme, globex) = (Request::new("orders", "acme"), Request::new("orders", "globex"));
//! for _ in 0..2 {
//!     assert!(limiter.check_async(&acme).await.is_admit());
//! }
//! let Verdict::Refuse(refusal) = limiter.check_async(&acme).await else { panic!("admitted") };
//! assert_eq!(refusal.reason(), Reason::TenantQuotaExceeded);
//! assert_eq!(refusal.retry_after(), Duration::from_secs(3_600));
//! assert!(limiter.check_async(&globex).await.is_admit());
//! plane.advance(Duration::from_secs(3_600));
//! assert!(limiter.check_async(&acme).await.is_admit());
//! # Ok(()) }
//! ```

mod error;
mod hooks;
mod ledger;
mod plane;
mod rule;
#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests;

pub use error::RuleError;
pub(crate) use hooks::{Draws, Hooks};
#[cfg(test)]
pub(crate) use ledger::QuotaLedger;
pub use plane::{ControlPlane, Decisions, KEYS_MAX};
