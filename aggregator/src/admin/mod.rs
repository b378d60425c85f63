//! The admin port of an aggregator: metrics, health checks, `/status` and the kill switch.

mod kill_routes;
pub(crate) mod metrics;
pub mod status;
#[cfg(test)]
mod tests;

use axum::Json;
use axum::http::Method;
use plimsoll_admin::access::Routes;
use plimsoll_admin::security::{ACCESS, CERTIFICATES, Opened};
use plimsoll_admin::server;
use plimsoll_core::stats::metrics::families;
use plimsoll_host::Shared;

use crate::zone::Zone;
use metrics::Events;
#[doc(hidden)]
pub use metrics::described;
use status::Status;

pub(crate) fn routes(zone: Shared<Zone>, events: Events, security: Opened) -> Routes {
    let (for_status, kill) = (zone.clone(), kill_routes::routes(&zone));
    let seen = events.clone();
    let trust = security.clone();
    let metrics = move || {
        let mut page = zone.with(|zone, now| metrics::page(zone, now, &events));
        page.extend(families(&CERTIFICATES, &security));
        page.extend(families(&ACCESS, &security));
        page
    };
    let status = move || async move {
        let status = for_status.with(|zone, now| Status::of(zone, now));
        let parent = seen.parent();
        Json(Status {
            // What the last one said is of no parent.
            parent_unconfirmed: status.parent_unconfirmed && parent.is_some(),
            parent,
            refused_children: seen.rejected_streams.refused(),
            security: trust.status(),
            ..status
        })
    };
    server::routes(metrics, || true)
        .viewer(Method::GET, "/status", status)
        .merge(kill)
}
