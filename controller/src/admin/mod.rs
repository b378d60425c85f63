//! The admin port of the controller: status, metrics, and the routes that operators' commands call.

pub(crate) mod history_routes;
pub(crate) mod in_effect;
pub(crate) mod kill_log;
pub(crate) mod kill_routes;
pub(crate) mod metrics;
pub(crate) mod rollout_log;
pub mod rollout_routes;
pub mod status;
