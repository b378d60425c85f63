//! Services with the client, Envoy with a sidecar and nginx with a sidecar keep one limit together,
//! and end their refusals together.

use std::time::Duration;

use plimsoll_testing::mixed_fleet::{Mixed, WEIGHTS, latest_rates};
use plimsoll_testing::process::until;
use plimsoll_testing::turns::turn;

use super::tool;
use crate::operators::kill::kill;

const LIMIT: u32 = 200;
const OFFERED: u32 = 3 * LIMIT;
/// Span of averages: 1,000 admitted requests. Their number varies by 3 %.
const SPAN: Duration = Duration::from_secs(5);
/// Span without a refusal that shows all paths admit all requests.
const QUIET: Duration = Duration::from_secs(2);

#[test]
fn mixed_fleet_keeps_one_weighted_limit() {
    let test = "mixed::mixed_fleet_keeps_one_weighted_limit";
    let Some((envoy, nginx)) = tool(test, "envoy").zip(tool(test, "nginx")) else {
        return;
    };
    let _turn = turn(OFFERED);
    let mut fleet = Mixed::start(LIMIT, &envoy, &nginx);
    fleet.start_load(OFFERED);
    let weights: f64 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
    let is_near = |rate: f64, wanted: f64| (rate / wanted - 1.0).abs() < 0.15;
    until("the limit to hold over all paths, by weight", || {
        let (served, of_tenants) = latest_rates(&fleet.answered(), SPAN)?;
        let mut parts = of_tenants.into_iter().zip(WEIGHTS);
        let limit = f64::from(LIMIT);
        let holds = is_near(served, limit)
            && parts.all(|(rate, (_, weight))| is_near(rate, limit * weight / weights));
        holds.then_some(())
    });
    assert!(
        fleet.refusals().iter().all(|refused| *refused > 0.0),
        "{:?}",
        fleet.refusals()
    );
    let failed = fleet.answered().last().map(|answered| answered.failed);
    assert_eq!(failed, Some(0.0), "requests without a proper answer");

    kill(&[
        "on",
        "--reason",
        "a test",
        "--controller",
        &fleet.controller.url("admin"),
    ]);
    until("every path to admit all", || {
        let answered = fleet.answered();
        let last = answered.last()?;
        let before = answered
            .iter()
            .rev()
            .find(|line| last.at_s - line.at_s >= QUIET.as_secs_f64())?;
        (last.refused == before.refused && last.served > before.served).then_some(())
    });
}
