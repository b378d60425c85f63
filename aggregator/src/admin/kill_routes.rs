//! The kill switch at the admin port of an aggregator, for use without a controller: a kill reaches
//! the clients of the zone immediately, and the controller after its return.

use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use plimsoll_admin::access::{AdminCaller, Routes};
use plimsoll_admin::body::{JsonBody, error_response};
use plimsoll_admin::drill;
use plimsoll_admin::kill_api::{
    Claimed, DRILL, DrillOrder, KillEnded, KillOff, KillOn, KillState, KillStatus, OFF, ON, STATUS,
    Tier, unknown_bucket,
};
use plimsoll_core::kill::{KilledBucketsFull, Scope};
use plimsoll_core::names::{Bucket, Text};
use plimsoll_host::Shared;

use crate::zone::Zone;

pub(crate) fn routes(zone: &Shared<Zone>) -> Routes {
    let (on, off, drill, status) = (zone.clone(), zone.clone(), zone.clone(), zone.clone());
    let status = async move || Json(status.with(|zone, _| kill_status(zone)));
    let on = async move |Extension(caller): Extension<AdminCaller>, JsonBody(order)| {
        kill(&on, &caller, order)
    };
    let off = async move |Extension(caller): Extension<AdminCaller>, JsonBody(order)| {
        end_kill(&off, &caller, order)
    };
    let drill = async move |JsonBody(order): JsonBody<DrillOrder>| {
        let none_away = |_: &Zone| 0;
        drill::run(
            &drill,
            order,
            Zone::begin_drill,
            Zone::drill_timing,
            none_away,
        )
        .await
    };
    Routes::new()
        .viewer(Method::GET, STATUS, status)
        .operator(Method::POST, ON, on)
        .operator(Method::POST, OFF, off)
        .operator(Method::POST, DRILL, drill)
}

fn kill(zone: &Shared<Zone>, caller: &AdminCaller, order: KillOn) -> Response {
    if order.ttl_s.is_some() {
        return error_response(
            StatusCode::BAD_REQUEST,
            "ttl_s: an aggregator cannot end a kill by itself; order it without a ttl and end it with `kill off`, \
             or order it at the controller",
        );
    }
    let by = caller.by(order.by);
    match enter(zone, order.bucket, true, order.reason.as_str(), by.as_ref()) {
        Ok(KillEnded { status, .. }) => Json(status).into_response(),
        Err(refused) => refused,
    }
}

fn end_kill(zone: &Shared<Zone>, caller: &AdminCaller, order: KillOff) -> Response {
    let reason = order.reason.as_ref().map_or("", Text::as_str);
    let by = caller.by(order.by);
    match enter(zone, order.bucket, false, reason, by.as_ref()) {
        Ok(ended) => Json(ended).into_response(),
        Err(refused) => refused,
    }
}

/// Enters an order or its end, and returns the answer to an end.
fn enter(
    zone: &Shared<Zone>,
    bucket: Option<Bucket>,
    killed: bool,
    reason: &str,
    by: Option<&Text>,
) -> Result<KillEnded, Response> {
    if let Some(unknown) = bucket
        .as_ref()
        .and_then(|bucket| zone.with(|zone, _| unknown(zone, bucket)))
    {
        return Err(error_response(StatusCode::BAD_REQUEST, unknown));
    }
    let (scope, by) = (Scope::from(bucket), by.map(Text::as_str));
    let entered = zone.with(|zone, now| {
        let before = zone.kills().generation(&scope);
        let (ended, passed) = if killed {
            zone.order_kill(now, &scope, true)?;
            (false, false)
        } else {
            zone.end_kill(now, &scope)?
        };
        let generation = zone.kills().generation(&scope);
        Ok((ended, passed, generation, generation != before))
    });
    let (ended, passed, generation, changed) =
        entered.map_err(|full: KilledBucketsFull| error_response(StatusCode::CONFLICT, full))?;
    tracing::warn!(
        %scope, killed, generation = generation.0, changed, reason, by,
        "kill switch ordered at this aggregator"
    );
    zone.notify();
    let status = zone.with(|zone, _| kill_status(zone));
    Ok(KillEnded {
        ended,
        passed,
        status,
    })
}

fn unknown(zone: &Zone, bucket: &Bucket) -> Option<String> {
    let is_known = zone.knows(bucket) || zone.kills().bucket(bucket).0 > 0;
    (!is_known).then(|| unknown_bucket(bucket, zone.known_buckets().map(Bucket::as_str)))
}

fn kill_status(zone: &Zone) -> KillStatus {
    let state = |scope: Scope| {
        let generation = zone.kills().generation(&scope);
        KillState {
            generation,
            killed: generation.is_killed(),
            ordered_below: zone.kills.is_ordered_below(&scope),
            ..KillState::default()
        }
    };
    let buckets = zone.kills().buckets().map(|(bucket, _)| bucket.clone());
    KillStatus {
        tier: Tier::Aggregator,
        fleet: state(Scope::Fleet),
        buckets: buckets
            .map(|bucket| (bucket.clone(), state(Scope::Bucket(bucket))))
            .collect(),
        in_shadow: Vec::new(),
        away: Vec::new(),
        killed_locally: zone.downstream.clients_below().killed_locally,
        claims: Claimed::list(zone.kills.claims()),
        saved: true,
    }
}
