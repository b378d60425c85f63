//! A drill that is ordered at an admin port: begins it, and answers once everybody has, or when time is up.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use plimsoll_core::drill::{Drill, Timing};
use plimsoll_core::time::MonoTime;
use tokio::time::{Instant, sleep};

use crate::local::refuse;
use crate::shared::Shared;
use crate::switch::{DRILL_MAX_MS, DrillOrder, Drilled};

/// How often it is looked at whether a drill is over.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Runs a drill on a state machine that can `begin` one and knows its `timing`. Another drill that begins meanwhile ends
/// this one.
pub async fn run<S>(
    machine: &Shared<S>,
    order: DrillOrder,
    begin: fn(&mut S, MonoTime) -> Drill,
    timing: fn(&S) -> &Timing,
) -> Response {
    if order.timeout_ms > DRILL_MAX_MS {
        return refuse(StatusCode::BAD_REQUEST, format_args!("timeout_ms: {DRILL_MAX_MS} are the most"));
    }
    let ends = Instant::now() + Duration::from_millis(order.timeout_ms);
    let drill = machine.with(begin);
    machine.ring();
    loop {
        let (drilled, is_over) = machine.with(|machine, _| {
            let timing = timing(machine);
            let complete = timing.is_complete();
            let drilled = Drilled::of(drill.0, &timing.spreads(), complete, timing.silent_aggregators());
            (drilled, complete || timing.drill() != drill)
        });
        if is_over || Instant::now() >= ends {
            return Json(drilled).into_response();
        }
        sleep(LOOK_EVERY).await;
    }
}
