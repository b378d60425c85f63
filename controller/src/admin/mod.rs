//! The admin port of the controller: status, metrics, and the routes that operators' commands call.

pub mod aggregator_routes;
mod history_routes;
mod kill_routes;
mod metrics;
pub mod rollout_routes;
pub mod status;

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::Method;
use plimsoll_admin::access::Routes;
use plimsoll_admin::server as admin_server;
use plimsoll_proto::shared::Shared;
use tokio::time::timeout;

use crate::admin::status::Status;
use crate::brain::Brain;
use crate::policy_file::PolicyFiles;
use crate::tasks::events::Events;
use crate::tasks::history::HistoryRecorder;

/// The longest wait for the disk. An order takes effect even if the caller stops waiting.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The state of most routes.
type BrainState = State<Shared<Brain>>;

/// Returns every route of the admin port.
pub(crate) fn routes(
    brain: Shared<Brain>,
    files: PolicyFiles,
    recorder: HistoryRecorder,
    events: Events,
) -> Routes {
    let (for_status, for_metrics) = (brain.clone(), brain.clone());
    let refused = events.rejected_streams.clone();
    let metrics = move || {
        for_metrics.with(|brain, now| metrics::page(brain, &Status::of(brain, now), &events, now)).text()
    };
    let status = move || async move {
        let status = for_status.with(|brain, now| Status::of(brain, now));
        Json(Status { refused_children: refused.refused(), ..status })
    };
    admin_server::routes(metrics, || true)
        .viewer(Method::GET, "/status", status)
        .merge(rollout_routes::routes(brain.clone(), files))
        .merge(kill_routes::routes(brain.clone()))
        .merge(aggregator_routes::routes(brain.clone()))
        .merge(history_routes::routes(brain, recorder))
}

/// Wakes the save task, and waits until the orders given so far take effect: they are saved, or saving
/// fails. Returns true if they are saved.
async fn in_effect(brain: &Shared<Brain>) -> bool {
    let mut changes = brain.changes();
    brain.notify();
    let in_effect = async {
        while !brain.with(|brain, _| brain.is_in_effect()) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    };
    let _ = timeout(TIMEOUT, in_effect).await;
    brain.with(|brain, _| brain.is_saved())
}
