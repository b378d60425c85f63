//! The admin port of every tier: access, Prometheus metrics, health and readiness checks, and the kill switch.
#![forbid(unsafe_code)]

pub mod access;
pub mod body;
pub mod drill;
mod http;
pub mod kill_api;
pub mod object;
pub mod other_controllers;
pub mod ports;
pub mod rejected_streams;
pub mod security;
pub mod server;
