//! Kill drills over HTTP: starts one and answers when every client has acknowledged it, another drill has started, or
//! the timeout passed.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use plimsoll_core::kill::drill::{Drill, DrillTiming};
use plimsoll_core::quantity::MonoTime;
use plimsoll_host::Shared;
use tokio::time::{Instant, sleep};

use crate::body::error_response;
use crate::kill_api::{DRILL_MAX_MS, DrillOrder, DrillReport};

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs a drill on a state machine: `begin` starts one, `timing` returns its progress, and `away`
/// the number of known aggregators that are not connected. While there are any, the drill is
/// incomplete. A drill that starts in the meantime ends this one.
pub async fn run<S>(
    machine: &Shared<S>,
    order: DrillOrder,
    begin: fn(&mut S, MonoTime) -> Drill,
    timing: fn(&S) -> &DrillTiming,
    away: fn(&S) -> usize,
) -> Response {
    if order.timeout_ms > DRILL_MAX_MS {
        let reason = format_args!(
            "timeout_ms: {} exceeds the maximum of {DRILL_MAX_MS}",
            order.timeout_ms
        );
        return error_response(StatusCode::BAD_REQUEST, reason);
    }
    let deadline = Instant::now() + Duration::from_millis(order.timeout_ms);
    let drill = machine.with(begin);
    machine.notify();
    loop {
        let (report, is_over) = machine.with(|machine, _| {
            let (timing, away) = (timing(machine), away(machine));
            let complete = timing.is_complete();
            let silent = timing.silent_aggregators() + away;
            let report =
                DrillReport::new(drill.0, &timing.spreads(), complete && away == 0, silent);
            (report, complete || timing.drill() != drill)
        });
        if is_over || Instant::now() >= deadline {
            return Json(report).into_response();
        }
        sleep(POLL_INTERVAL).await;
    }
}
