//! The admin port of an aggregator: `/status`, `/metrics`, health checks and the kill switch.

mod kill_routes;
pub(crate) mod metrics;
pub mod status;
