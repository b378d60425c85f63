//! The admin port of the controller: status, metrics, and the routes that operators' commands call.

pub(crate) mod history_routes;
pub(crate) mod in_effect;
pub(crate) mod kill_routes;
pub(crate) mod metrics;
pub mod rollout_routes;
pub mod status;

use axum::routing::get;
use axum::{Json, Router};
use plimsoll_admin::server as admin_server;
use plimsoll_proto::shared::Shared;

use crate::admin::status::Status;
use crate::brain::Brain;
use crate::tasks::events::Events;
use crate::tasks::history::HistoryRecorder;

/// Returns every route of the admin port.
pub(crate) fn routes(brain: Shared<Brain>, recorder: HistoryRecorder, events: Events) -> Router {
    let (for_status, for_metrics) = (brain.clone(), brain.clone());
    let metrics = move || {
        for_metrics.with(|brain, now| metrics::page(brain, &Status::of(brain, now), &events, now)).text()
    };
    let status = move || async move { Json(for_status.with(|brain, now| Status::of(brain, now))) };
    admin_server::routes(metrics, || true)
        .route("/status", get(status))
        .merge(rollout_routes::routes(&brain))
        .merge(kill_routes::routes(&brain))
        .merge(history_routes::routes(brain, recorder))
}
