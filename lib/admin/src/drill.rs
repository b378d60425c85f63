//! Kill drills over HTTP: starts one and answers when every client has acknowledged it or the timeout passed, or with an
//! error when another drill has started.

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
/// the number of known aggregators that are not connected. While there are any, the report says that
/// the drill is incomplete. A drill that starts in the meantime ends this one with 409.
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
        let progress = machine.with(|machine, _| {
            let (timing, away) = (timing(machine), away(machine));
            // There is one timing, which a later drill takes over.
            if timing.drill() != drill {
                return None;
            }
            let complete = timing.is_complete();
            let silent = timing.silent_aggregators() + away;
            let report =
                DrillReport::new(drill.0, &timing.spreads(), complete && away == 0, silent);
            // Aggregators that are away cannot acknowledge, so nothing waits for them.
            Some((report, complete))
        });
        let Some((report, is_over)) = progress else {
            let reason = "another drill has begun and ended this one: run one at a time";
            return error_response(StatusCode::CONFLICT, reason);
        };
        if is_over || Instant::now() >= deadline {
            return Json(report).into_response();
        }
        sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use plimsoll_core::kill::drill::DueChild;
    use plimsoll_core::names::Zone;
    use plimsoll_core::report::{InstanceId, Role};

    use super::*;

    #[tokio::test]
    async fn later_drill_takes_over_the_timing() {
        let machine = Shared::new(DrillTiming::default());
        let begin = |timing: &mut DrillTiming, now| {
            let drill = Drill(timing.drill().0 + 1);
            let child = DueChild {
                zone: Zone::new("a").unwrap(),
                role: Role::Client,
                clients: 1,
            };
            timing.begin(now, drill, None, [(InstanceId(1), child)].into_iter());
            drill
        };
        let order = DrillOrder {
            timeout_ms: DRILL_MAX_MS,
        };
        let mut first = pin!(run(&machine, order, begin, |timing| timing, |_| 0));
        let polled = poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx)));
        assert!(polled.await.is_pending());
        machine.with(begin);
        assert_eq!(first.await.status(), StatusCode::CONFLICT);
    }
}
