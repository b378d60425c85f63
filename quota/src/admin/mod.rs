//! The admin port of a quota server: metrics, health checks, status, and the buckets as operators see them.

pub mod api;
pub mod key_text;
mod metrics;
mod ports;
mod quota_routes;
pub mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Json;
use axum::http::Method;
use plimsoll_admin::access::Routes;
use plimsoll_admin::security::Opened;
use plimsoll_admin::server;
use plimsoll_core::stats::metrics::About;

pub(crate) use self::ports::Ports;
use self::status::Status;
use crate::engine::Engine;
use crate::resp::Counters;

#[derive(Clone, Debug)]
pub(crate) struct Sources {
    pub(crate) engine: Engine,
    pub(crate) ports: Ports,
    pub(crate) resp: Arc<Counters>,
    pub(crate) security: Opened,
}

/// Returns the descriptions of all metrics of the admin port. Not part of the API.
#[doc(hidden)]
#[must_use]
pub fn described() -> Vec<About> {
    metrics::described()
}

pub(crate) fn routes(sources: Sources) -> Routes {
    let (of_page, of_status) = (sources.clone(), sources.clone());
    let page = move || metrics::page(&of_page);
    let status = move || async move { Json(Status::of(&of_status)) };
    let engine = sources.engine.clone();
    server::routes(page, move || engine.is_ready())
        .viewer(Method::GET, "/status", status)
        .merge(quota_routes::routes(sources.engine))
}
