//! What the protection is for: services with a finite capacity, asked for three times as much, give useful answers only
//! when most of the excess is refused before it costs anything.

use std::time::Duration;

use serde_json::Value;

use crate::fleet::{Fleet, TENANTS, policy};
use crate::process::until;
use crate::processes::alone;

/// What four services with two workers each can answer that need 20 ms for a request, in requests/s.
const CAPACITY: f64 = 400.0;
/// Waiting for a worker takes 0.6 s when the queue is full: more than the callers have.
const SERVICE: [&str; 6] = ["--workers", "2", "--work-ms", "20", "--queue", "60"];
const TIMEOUT_MS: f64 = 300.0;
/// What is left over empties the queues.
const LIMIT: u32 = 300;
/// What useful answers are counted over.
const SPAN: Duration = Duration::from_secs(1);

#[test]
fn a_protected_service_gives_useful_answers_where_an_unprotected_one_gives_none() {
    let _alone = alone();
    let mut fleet = Fleet::start_with(&policy(LIMIT, "shadow", false), TENANTS, &SERVICE);
    let (rps, timeout) = ((3.0 * CAPACITY).to_string(), format!("{TIMEOUT_MS}ms"));
    fleet.ask_evenly(&["--rps", &rps, "--tenant", "acme", "--timeout", &timeout, "--every", "250ms"]);

    until_callers("the unprotected services to answer too late", &mut fleet, |seen| {
        seen("sent") > 2.0 * CAPACITY && seen("served") < 0.25 * CAPACITY && seen("timed_out") > 0.0
    });

    fleet.save_policy(&policy(LIMIT, "enforce", false));
    until_callers("the protected services to answer in time", &mut fleet, |seen| {
        seen("sent") > 2.0 * CAPACITY && seen("served") > 0.6 * CAPACITY && seen("refused") > CAPACITY
    });

    let seen = fleet.stop_asking();
    assert!(
        seen[0]["max_ms"].as_f64() >= Some(TIMEOUT_MS),
        "those who gave up waited that long: {}",
        seen[0]
    );
    assert_eq!(seen[0]["not_sent"], 0, "the callers kept up: {}", seen[0]);
}

/// Waits until what the callers saw over the last second is as wanted, in requests/s.
fn until_callers(what: &str, fleet: &mut Fleet, wanted: impl Fn(&dyn Fn(&str) -> f64) -> bool) {
    until(what, || {
        let lines = fleet.callers_say();
        let number = |line: &Value, figure: &str| line[figure].as_f64().unwrap();
        let now = lines.last()?;
        let seconds = |from: &Value| number(now, "at_s") - number(from, "at_s");
        let from = lines.iter().rev().find(|line| seconds(line) >= SPAN.as_secs_f64())?;
        wanted(&|figure| (number(now, figure) - number(from, figure)) / seconds(from)).then_some(())
    });
}
