//! Callers after a surge: rude and polite ones, who call services that finish work for callers who have gone.

use std::thread::sleep;
use std::time::Duration;

use plimsoll_testing::fleet::{Fleet, TENANTS, policy};
use serde_json::Value;

use super::{CAPACITY, LIMIT};
use crate::measure::report::Report;

/// Requests/s of four services with four workers each, which need 40 ms for a request; a full queue takes 1.2 s.
const SERVICE: [&str; 6] = ["--workers", "4", "--work-ms", "40", "--queue", "116"];
/// Seconds at which a surge of three times the load begins and ends, and the run ends.
const SURGE: (f64, f64) = (15.0, 45.0);
const END_S: f64 = 80.0;
/// One seed, so that rude and polite callers get the same requests.
const SEED: &str = "7";

pub(in crate::measure) fn measure(report: &mut Report) {
    for load in [0.6, 0.8] {
        for (mode, limited) in [("shadow", "without a limit"), ("enforce", "with a limit")] {
            for manners in ["rude", "polite"] {
                row(report, load, (mode, limited), manners);
            }
        }
    }
}

fn row(report: &mut Report, load: f64, (mode, limited): (&str, &str), manners: &str) {
    let lines = run(load * CAPACITY, mode, manners);
    let after = share(&lines, SURGE.1, SURGE.1 + 20.0);
    let later = share(&lines, SURGE.1 + 10.0, END_S);
    let last = lines.last().unwrap();
    let attempts = figure(last, "attempts") / figure(last, "sent");
    let title = format!(
        "callers, {manners}, {load} of the capacity, {limited}: useful answers over requests"
    );
    let shown = format!(
        "{:.0} % in the 20 s after the surge, {:.0} % from 10 s after it; {attempts:.2} attempts for each request",
        after * 100.0,
        later * 100.0
    );
    match manners {
        "polite" => {
            let is_met = later >= 0.95 && attempts <= 1.1;
            report.row(&title, ">= 95 % from 10 s, <= 1.1 attempts", shown, is_met);
        }
        _ if mode == "shadow" && load > 0.7 => {
            report.row(&title, "< 20 % in 20 s", shown, after < 0.2);
        }
        _ => report.note(&title, shown),
    }
}

/// Returns the results so far, every half second.
fn run(rps: f64, mode: &str, manners: &str) -> Vec<Value> {
    let mut fleet = Fleet::start_with(&policy(LIMIT, mode, false), TENANTS, &SERVICE);
    let rates = format!("{rps},{}@{}s,{rps}@{}s", rps * 3.0, SURGE.0, SURGE.1);
    let flags = [
        "--rps",
        &rates,
        "--timeout",
        "1s",
        "--every",
        "500ms",
        "--seed",
        SEED,
    ];
    fleet.start_load_evenly(&[&flags[..], &["--retries", "3", "--caller", manners]].concat());
    sleep(Duration::from_secs_f64(END_S + 1.0));
    let lines = fleet.load_lines();
    let not_sent = fleet.stop_load()[0]["not_sent"].as_u64();
    assert_eq!(not_sent, Some(0), "the load generator could not keep up");
    lines
}

/// Returns the useful answers over the requests between two moments.
fn share(lines: &[Value], from: f64, until: f64) -> f64 {
    let at = |moment: f64| {
        lines
            .iter()
            .find(|line| figure(line, "at_s") >= moment)
            .unwrap()
    };
    let (first, last) = (at(from), at(until));
    let grown = |name: &str| figure(last, name) - figure(first, name);
    grown("served") / grown("sent")
}

fn figure(line: &Value, name: &str) -> f64 {
    line[name].as_f64().unwrap()
}
