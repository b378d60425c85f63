//! The kill switch at the admin port of a controller.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use plimsoll_admin::drill;
use plimsoll_admin::kill_api::{
    DRILL, DrillOrder, KillOff, KillOn, KillOrder, KillState, KillStatus, OFF, ON, STATUS, TTL_MAX_S, Tier,
};
use plimsoll_admin::loopback::{JsonBody, error_response, loopback_only};
use plimsoll_core::kill::Scope;
use plimsoll_core::quantity::MonoTime;
use plimsoll_proto::shared::Shared;

use crate::admin::{BrainState, in_effect};
use crate::brain::Brain;
use crate::state::Command;
use crate::tasks::unix_s;

/// Creates the routes of the kill switch, which answer to loopback only.
pub(crate) fn routes(brain: Shared<Brain>) -> Router {
    let routes = Router::new()
        .route(STATUS, get(async |State(brain): BrainState| Json(brain.with(kill_status))))
        .route(ON, post(kill))
        .route(OFF, post(end_kill))
        .route(DRILL, post(run_drill))
        .with_state(brain);
    loopback_only(routes)
}

async fn kill(State(brain): BrainState, JsonBody(order): JsonBody<KillOn>) -> Response {
    if order.ttl_s.is_some_and(|ttl| ttl == 0 || ttl > TTL_MAX_S) {
        let reason = format_args!("ttl_s: must be from 1 to {TTL_MAX_S} seconds");
        return error_response(StatusCode::BAD_REQUEST, reason);
    }
    let now_s = unix_s();
    let until_s = order.ttl_s.map(|ttl| now_s.saturating_add(i64::try_from(ttl).unwrap_or(i64::MAX)));
    let scope = Scope::from(order.bucket);
    let since_s = Some(now_s);
    let command =
        Command { reason: Some(order.reason), by: order.by, since_s, until_s, ..Command::default() };
    if let Err(full) = brain.with(|brain, _| brain.on_kill(&scope, command)) {
        return error_response(StatusCode::CONFLICT, full);
    }
    answer(&brain).await
}

async fn end_kill(State(brain): BrainState, JsonBody(order): JsonBody<KillOff>) -> Response {
    let scope = Scope::from(order.bucket);
    let ended = brain.with(|brain, now| brain.on_kill_ends(now, &scope));
    let (reason, by) = (order.reason.map(|text| text.to_string()), order.by.map(|text| text.to_string()));
    tracing::warn!(%scope, ended, reason, by, "end of a kill ordered by command");
    answer(&brain).await
}

async fn run_drill(State(brain): BrainState, JsonBody(order): JsonBody<DrillOrder>) -> Response {
    drill::run(&brain, order, Brain::begin_drill, Brain::drill_timing).await
}

async fn answer(brain: &Shared<Brain>) -> Response {
    in_effect(brain).await;
    Json(brain.with(kill_status)).into_response()
}

/// The state of the kill switch of the fleet and of every bucket that was ever killed alone.
fn kill_status(brain: &mut Brain, _now: MonoTime) -> KillStatus {
    let durable = brain.durable();
    let buckets = durable.bucket_kills.keys();
    KillStatus {
        tier: Tier::Controller,
        fleet: kill_state(brain, &Scope::Fleet),
        buckets: buckets
            .map(|bucket| (bucket.clone(), kill_state(brain, &Scope::Bucket(bucket.clone()))))
            .collect(),
        saved: brain.is_saved(),
    }
}

fn kill_state(brain: &Brain, scope: &Scope) -> KillState {
    let durable = brain.durable();
    let generation = durable.generation(scope);
    let of_bucket = scope.bucket().and_then(|bucket| durable.bucket_kills.get(bucket));
    let order = |command: &Command| KillOrder {
        reason: command.reason.clone(),
        by: command.by.clone(),
        since_s: command.since_s,
        until_s: command.until_s,
    };
    KillState {
        generation,
        killed: generation.is_killed(),
        by_file: *scope == Scope::Fleet && durable.killed_by_file,
        command: durable.command(scope).map(order),
        held_in_shadow: of_bucket.is_some_and(|of| of.held.is_some()),
        known: scope.bucket().is_none_or(|bucket| brain.knows(bucket)),
    }
}
