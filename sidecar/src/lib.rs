//! The sidecar of Plimsoll: a limiter behind ports, for proxies and for services that cannot embed
//! it.
//!
//! A sidecar is a client of its zone's aggregators like every service that embeds the limiter, and
//! decides from the same cached directives. Envoy asks it over the rate limit service (RLS), other
//! proxies and callers over HTTP.
//!
//! [`rules`] map requests to buckets and tenants, and follow their file. [`limits`] holds the limiter with
//! the current rules. `rls` and `http` translate between the protocols and [`limits`], `serve` owns
//! sockets.
#![forbid(unsafe_code)]

mod admin;
mod args;
mod http;
mod limiter_args;
pub mod limits;
mod rls;
pub mod rules;
mod serve;
mod sidecar;
mod tally;

#[doc(hidden)]
pub use admin::described as described_metrics;
pub use admin::{RulesStatus, Status};
pub use args::{ADMIN_PORT, Args, Error, HTTP_PORT, RLS_PORT};
pub use limiter_args::{LimiterArgs, trust_in_flags};
pub use serve::UnixSocketError;
pub use sidecar::{Listeners, Sidecar, run};
