//! The admin port of every tier: Prometheus metrics, health and readiness checks, and the kill switch.
#![forbid(unsafe_code)]

pub mod drill;
mod http;
pub mod kill_api;
mod local_caller;
pub mod loopback;
pub mod metrics_page;
pub mod other_controllers;
pub mod ports;
pub mod rejected_streams;
pub mod server;
