//! The admin port of every tier: Prometheus metrics, health and readiness checks, and the kill switch.
#![forbid(unsafe_code)]

pub mod drill;
pub mod kill_api;
pub mod loopback;
pub mod metrics_page;
pub mod rejected_streams;
pub mod server;
