//! Misuses of the limiter that do not compile. For others see the
//! [setup problems](super::SetupProblem). Each differs in one expression from an example in the
//! documentation of the same item.
//!
//! A verdict that is thrown away protects nothing:
//! ```compile_fail
//! #![deny(unused_must_use)]
//! # use plimsoll_client::{Limiter, Request};
//! # let (limiter, _feed) = Limiter::builder("shop").build().unwrap();
//! limiter.check(&Request::new("checkout", "acme"));
//! ```
//! A decision that waits is a future:
//! ```compile_fail
//! #![deny(unused_must_use)]
//! # use plimsoll_client::{Limiter, Request};
//! # async fn job(limiter: Limiter) {
//! limiter.check_async(&Request::new("checkout", "acme"));
//! # }
//! ```
//! A request is asked about, not only made:
//! ```compile_fail
//! #![deny(unused_must_use)]
//! # use plimsoll_client::Request;
//! Request::new("checkout", "acme").cost(50);
//! ```
//! A cost is a whole number, and not below zero:
//! ```compile_fail
//! # use plimsoll_client::Request;
//! let request = Request::new("checkout", "acme").cost(-1);
//! ```
//! A wait has a unit:
//! ```compile_fail
//! # use plimsoll_client::Request;
//! let request = Request::new("checkout", "acme").within(60);
//! ```
//! Several keys are requests, each with its own cost:
//! ```compile_fail
//! # use plimsoll_client::Request;
//! let request = Request::all(&[("by-workspace", "acme"), ("by-user", "jo")]);
//! ```
//! Metrics are of a limiter, which its builder has made:
//! ```compile_fail
//! # use plimsoll_client::{Limiter, Metrics};
//! let metrics = Metrics::new(&Limiter::builder("shop"));
//! ```
