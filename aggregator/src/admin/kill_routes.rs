//! The kill switch at the admin port of an aggregator, for use without a controller: a kill reaches the
//! clients of the zone at once, and the controller when it is back.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use plimsoll_admin::drill;
use plimsoll_admin::kill_api::{
    DRILL, DrillOrder, KillOff, KillOn, KillState, KillStatus, OFF, ON, STATUS, Tier,
};
use plimsoll_admin::loopback::{JsonBody, error_response, loopback_only};
use plimsoll_core::kill::{KillGeneration, Scope};
use plimsoll_core::names::{Bucket, Text};
use plimsoll_proto::shared::Shared;

use crate::zone::Zone;

/// Creates the routes of the kill switch, which answer to loopback only.
pub(crate) fn routes(zone: &Shared<Zone>) -> Router {
    let (on, off, drill, status) = (zone.clone(), zone.clone(), zone.clone(), zone.clone());
    let routes = Router::new()
        .route(STATUS, get(async move || Json(status.with(|zone, _| kill_status(zone)))))
        .route(ON, post(async move |JsonBody(order): JsonBody<KillOn>| kill(&on, order)))
        .route(OFF, post(async move |JsonBody(order): JsonBody<KillOff>| end_kill(&off, order)))
        .route(
            DRILL,
            post(async move |JsonBody(order): JsonBody<DrillOrder>| {
                drill::run(&drill, order, Zone::begin_drill, Zone::drill_timing).await
            }),
        );
    loopback_only(routes)
}

fn kill(zone: &Shared<Zone>, order: KillOn) -> Response {
    if order.ttl_s.is_some() {
        return error_response(
            StatusCode::BAD_REQUEST,
            "ttl_s: an aggregator cannot end a kill by itself; order it without a ttl and end it with `kill off`, \
             or order it at the controller",
        );
    }
    enter(zone, &order.bucket.into(), true, order.reason.as_str(), order.by.as_ref())
}

fn end_kill(zone: &Shared<Zone>, order: KillOff) -> Response {
    let reason = order.reason.as_ref().map_or("", Text::as_str);
    enter(zone, &order.bucket.into(), false, reason, order.by.as_ref())
}

fn enter(zone: &Shared<Zone>, scope: &Scope, killed: bool, reason: &str, by: Option<&Text>) -> Response {
    let by = by.map(Text::as_str);
    let (changed, generation) =
        zone.with(|zone, now| (zone.order_kill(now, scope, killed), zone.kills().generation(scope).0));
    match changed {
        Err(full) => return error_response(StatusCode::CONFLICT, full),
        Ok(changed) => {
            tracing::warn!(
                %scope, killed, generation, changed, reason, by,
                "kill switch ordered at this aggregator"
            );
        }
    }
    zone.notify();
    Json(zone.with(|zone, _| kill_status(zone))).into_response()
}

fn kill_status(zone: &Zone) -> KillStatus {
    let kills = zone.kills();
    let state = |generation: KillGeneration, known| KillState {
        generation,
        killed: generation.is_killed(),
        known,
        ..KillState::default()
    };
    let of = |bucket: &Bucket, generation| (bucket.clone(), state(generation, zone.knows(bucket)));
    KillStatus {
        tier: Tier::Aggregator,
        fleet: state(kills.fleet(), true),
        buckets: kills.buckets().map(|(bucket, generation)| of(bucket, generation)).collect(),
        saved: true,
    }
}
