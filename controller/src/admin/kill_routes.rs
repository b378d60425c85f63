//! The kill switch at the admin port of a controller: what operators order and ask.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use plimsoll_core::kill::Scope;
use plimsoll_proto::drill_route;
use plimsoll_proto::local::{Asked, local, refuse};
use plimsoll_proto::shared::Shared;
use plimsoll_proto::switch::{
    DRILL, DrillOrder, OFF, ON, Off, On, Order, STATUS, Switch, Switches, TTL_MAX_S, Tier,
};

use crate::brain::Brain;
use crate::state::Command;
use crate::admin::in_effect::in_effect;

/// The routes.
pub(crate) fn routes(brain: &Shared<Brain>) -> Router {
    let (on, off, drill, status) = (brain.clone(), brain.clone(), brain.clone(), brain.clone());
    let routes = Router::new()
        .route(STATUS, get(async move || Json(status.with(|brain, _| switches(brain)))))
        .route(ON, post(async move |Asked(order): Asked<On>| kill(&on, order).await))
        .route(OFF, post(async move |Asked(order): Asked<Off>| end(&off, order).await))
        .route(
            DRILL,
            post(async move |Asked(order): Asked<DrillOrder>| {
                drill_route::run(&drill, order, Brain::begin_drill, Brain::timing).await
            }),
        );
    local(routes)
}

async fn kill(brain: &Shared<Brain>, order: On) -> Response {
    if order.ttl_s.is_some_and(|ttl| ttl == 0 || ttl > TTL_MAX_S) {
        return refuse(StatusCode::BAD_REQUEST, format_args!("ttl_s: 1 to {TTL_MAX_S} seconds are possible"));
    }
    let now_s = unix_s();
    let until_s = order.ttl_s.map(|ttl| now_s.saturating_add(i64::try_from(ttl).unwrap_or(i64::MAX)));
    let scope = Scope::from(order.bucket);
    let command = Command { reason: Some(order.reason), by: order.by, since_s: Some(now_s), until_s };
    if let Err(no_room) = brain.with(|brain, _| brain.on_kill(&scope, command)) {
        return refuse(StatusCode::CONFLICT, no_room);
    }
    answer(brain).await
}

async fn end(brain: &Shared<Brain>, order: Off) -> Response {
    let (reason, by) = (order.reason, order.by);
    let scope = Scope::from(order.bucket);
    let ended = brain.with(|brain, _| brain.on_kill_ends(&scope));
    let (reason, by) = (reason.as_ref().map(ToString::to_string), by.as_ref().map(ToString::to_string));
    tracing::warn!(%scope, ended, reason, by, "somebody asked for the end of a kill");
    answer(brain).await
}

async fn answer(brain: &Shared<Brain>) -> Response {
    in_effect(brain).await;
    Json(brain.with(|brain, _| switches(brain))).into_response()
}

/// What is killed, and who says so.
fn switches(brain: &Brain) -> Switches {
    let durable = brain.durable();
    let buckets = durable.bucket_kills.keys();
    Switches {
        tier: Tier::Controller,
        fleet: switch(brain, &Scope::Fleet),
        buckets: buckets
            .map(|bucket| (bucket.clone(), switch(brain, &Scope::Bucket(bucket.clone()))))
            .collect(),
        saved: brain.is_saved(),
    }
}

fn switch(brain: &Brain, scope: &Scope) -> Switch {
    let durable = brain.durable();
    let generation = durable.generation(scope);
    let of_bucket = scope.bucket().and_then(|bucket| durable.bucket_kills.get(bucket));
    let order = |command: &Command| Order {
        reason: command.reason.clone(),
        by: command.by.clone(),
        since_s: command.since_s,
        until_s: command.until_s,
    };
    Switch {
        generation,
        killed: generation.is_killed(),
        by_file: *scope == Scope::Fleet && durable.killed_by_file,
        command: durable.command(scope).map(order),
        held_in_shadow: of_bucket.is_some_and(|of| of.held.is_some()),
        known: scope.bucket().is_none_or(|bucket| brain.knows(bucket)),
    }
}

fn unix_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
