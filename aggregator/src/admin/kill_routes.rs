//! The kill switch at the admin port of an aggregator, for when no controller lives: it reaches the clients of its zone, and
//! the controller learns of it when it comes back.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use plimsoll_core::names::Bucket;
use plimsoll_core::kill::{KillGeneration, Scope};
use plimsoll_proto::drill_route;
use plimsoll_proto::local::{Asked, local, refuse};
use plimsoll_proto::shared::Shared;
use plimsoll_proto::switch::{DRILL, DrillOrder, OFF, ON, Off, On, STATUS, Switch, Switches, Tier};

use crate::zone::Zone;

/// The routes.
pub(crate) fn routes(zone: &Shared<Zone>) -> Router {
    let (on, off, drill, status) = (zone.clone(), zone.clone(), zone.clone(), zone.clone());
    let routes = Router::new()
        .route(STATUS, get(async move || Json(status.with(|zone, _| switches(zone)))))
        .route(ON, post(async move |Asked(order): Asked<On>| kill(&on, order)))
        .route(OFF, post(async move |Asked(order): Asked<Off>| end(&off, order)))
        .route(
            DRILL,
            post(async move |Asked(order): Asked<DrillOrder>| {
                drill_route::run(&drill, order, Zone::begin_drill, Zone::timing).await
            }),
        );
    local(routes)
}

fn kill(zone: &Shared<Zone>, order: On) -> Response {
    if order.ttl_s.is_some() {
        return refuse(
            StatusCode::BAD_REQUEST,
            "an aggregator keeps no time for a kill: order it without a ttl and end it with `kill off`, or order it at the \
             controller",
        );
    }
    let by = order.by.as_ref().map(ToString::to_string);
    turn(zone, &order.bucket.into(), true, &order.reason.to_string(), by.as_deref())
}

fn end(zone: &Shared<Zone>, order: Off) -> Response {
    let reason = order.reason.as_ref().map(ToString::to_string);
    let by = order.by.as_ref().map(ToString::to_string);
    turn(zone, &order.bucket.into(), false, reason.as_deref().unwrap_or_default(), by.as_deref())
}

fn turn(zone: &Shared<Zone>, scope: &Scope, killed: bool, reason: &str, by: Option<&str>) -> Response {
    let (turned, generation) =
        zone.with(|zone, now| (zone.turn(now, scope, killed), zone.kills().generation(scope).0));
    match turned {
        Err(no_room) => return refuse(StatusCode::CONFLICT, no_room),
        Ok(turned) => {
            tracing::warn!(%scope, killed, generation, turned, reason, by, "the kill switch was ordered here");
        }
    }
    zone.ring();
    Json(zone.with(|zone, _| switches(zone))).into_response()
}

fn switches(zone: &Zone) -> Switches {
    let kills = zone.kills();
    let switch = |generation: KillGeneration, known| Switch {
        generation,
        killed: generation.is_killed(),
        known,
        ..Switch::default()
    };
    let of = |bucket: &Bucket, generation| (bucket.clone(), switch(generation, zone.knows(bucket)));
    Switches {
        tier: Tier::Aggregator,
        fleet: switch(kills.fleet(), true),
        buckets: kills.buckets().map(|(bucket, generation)| of(bucket, generation)).collect(),
        saved: true,
    }
}
