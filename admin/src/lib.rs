//! The admin port of every tier: Prometheus metrics, health and readiness checks, and the kill switch.
//!
//! The feature `server` adds the HTTP server and its routes. Without it the crate is the [metrics page](metrics_page)
//! alone, so that a service that embeds a limiter does not build a web server.
#![forbid(unsafe_code)]

#[cfg(feature = "server")]
pub mod drill;
#[cfg(feature = "server")]
pub mod kill_api;
#[cfg(feature = "server")]
pub mod loopback;
pub mod metrics_page;
#[cfg(feature = "server")]
pub mod rejected_streams;
#[cfg(feature = "server")]
pub mod server;
