//! Goodput: services with a finite capacity under three times the load give useful answers only if
//! most of the excess is refused before it uses capacity.

use std::time::Duration;

use plimsoll_testing::fleet::{Fleet, TENANTS, policy};
use plimsoll_testing::process::until;
use plimsoll_testing::turns::turn;
use serde_json::Value;

/// Requests/s of four services with two workers each, which need 20 ms for a request.
const CAPACITY: f64 = 400.0;
/// Three times the capacity.
const OFFERED: u32 = 1_200;
/// A request waits 0.6 s in a full queue, longer than its caller does.
const SERVICE: [&str; 6] = ["--workers", "2", "--work-ms", "20", "--queue", "60"];
const TIMEOUT_MS: f64 = 300.0;
/// Leaves capacity to empty the queues.
const LIMIT: u32 = 300;
const SPAN: Duration = Duration::from_secs(1);

#[test]
fn protected_service_keeps_its_goodput_under_overload() {
    let _turn = turn(2 * OFFERED);
    let mut fleet = Fleet::start_with(&policy(LIMIT, "shadow", false), TENANTS, &SERVICE);
    let (rps, timeout) = (OFFERED.to_string(), format!("{TIMEOUT_MS}ms"));
    fleet.start_load_evenly(&[
        "--rps",
        &rps,
        "--tenant",
        "acme",
        "--timeout",
        &timeout,
        "--every",
        "250ms",
    ]);

    // Only while the load generator keeps up with the load.
    until_rates(
        "the unprotected services to answer too late",
        &mut fleet,
        |rate| {
            rate("not_sent") == 0.0
                && rate("sent") > 2.0 * CAPACITY
                && rate("served") < 0.25 * CAPACITY
                && rate("timed_out") > 0.0
        },
    );

    fleet.save_policy(&policy(LIMIT, "enforce", false));
    until_rates(
        "the protected services to answer in time",
        &mut fleet,
        |rate| {
            rate("not_sent") == 0.0
                && rate("sent") > 2.0 * CAPACITY
                && rate("served") > 0.6 * CAPACITY
                && rate("refused") > CAPACITY
        },
    );

    let summaries = fleet.stop_load();
    assert!(
        summaries[0]["max_ms"].as_f64() >= Some(TIMEOUT_MS),
        "callers that gave up waited for the timeout: {}",
        summaries[0]
    );
}

/// Waits until the outcomes of the last second, in requests/s, are as wanted.
fn until_rates(what: &str, fleet: &mut Fleet, wanted: impl Fn(&dyn Fn(&str) -> f64) -> bool) {
    until(what, || {
        let lines = fleet.load_lines();
        let number = |line: &Value, figure: &str| line[figure].as_f64().unwrap();
        let now = lines.last()?;
        let seconds = |from: &Value| number(now, "at_s") - number(from, "at_s");
        let from = lines
            .iter()
            .rev()
            .find(|line| seconds(line) >= SPAN.as_secs_f64())?;
        wanted(&|figure| (number(now, figure) - number(from, figure)) / seconds(from)).then_some(())
    });
}
