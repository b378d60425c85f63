//! Goodput: the useful answers of services with a finite capacity while one tenant sends more and
//! more requests, without Plimsoll and with it.

pub(super) mod callers;
mod chart;

use std::fmt::Write as _;
use std::thread::sleep;
use std::time::Duration;

use plimsoll_testing::fleet::{Fleet, policy, schedule};
use serde_json::Value;

use crate::measure::report::Report;

/// Requests/s of four services with four workers each, which need 40 ms for a request.
pub(crate) const CAPACITY: f64 = 400.0;
/// A request waits 1 s in a full queue, as in many services, and longer than its caller does.
const SERVICE: [&str; 6] = ["--workers", "4", "--work-ms", "40", "--queue", "100"];
const TIMEOUT: &str = "500ms";
/// Leaves a tenth of the capacity to empty the queues.
pub(crate) const LIMIT: u32 = 360;
pub(crate) const ORDINARY: usize = 20;
/// Requests/s of each ordinary tenant: together six tenths of the capacity.
pub(crate) const ORDINARY_RPS: f64 = 12.0;
const HOT: &str = "hot";
/// Requests/s of the hot tenant, step by step: with the others up to four times the capacity.
const HOT_RPS: [f64; 7] = [0.0, 80.0, 160.0, 240.0, 400.0, 800.0, 1_360.0];
const STEP: Duration = Duration::from_secs(12);
const LEFT_OUT: Duration = Duration::from_secs(4);

pub(crate) struct Curves {
    pub(crate) without: Vec<Point>,
    pub(crate) with: Vec<Point>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) offered: f64,
    pub(crate) useful: f64,
    pub(crate) ordinary_offered: f64,
    pub(crate) ordinary_useful: f64,
}

pub(crate) fn measure(report: &mut Report) {
    // Both fleets are alike except for the mode.
    let curves = Curves {
        without: run("shadow"),
        with: run("enforce"),
    };
    for (without, with) in curves.without.iter().zip(&curves.with) {
        println!(
            "       {:.0}/s offered: useful without {:.0}/s ({:.0}/s ordinary), with {:.0}/s ({:.0}/s ordinary)",
            with.offered,
            without.useful,
            without.ordinary_useful,
            with.useful,
            with.ordinary_useful
        );
    }
    let least = |points: &[Point], figure: fn(&Point) -> f64| {
        points.iter().map(figure).fold(f64::INFINITY, f64::min)
    };
    let curve = [&curves.with, &curves.without];
    let [with, without] =
        curve.map(|points| least(&points[3..], |point| point.useful / CAPACITY * 100.0));
    let title = "goodput, capacity exceeded up to 4 times: least goodput at any step";
    let figure = format!("{with:.0} % (without Plimsoll {without:.0} %)");
    report.row(title, "> 80 % of the capacity", figure, with > 80.0);
    let answered = |point: &Point| point.ordinary_useful / point.ordinary_offered * 100.0;
    let [with, without] = curve.map(|points| least(points, answered));
    let title = "goodput, capacity exceeded up to 4 times: useful answers of ordinary tenants over their requests, at any step";
    let figure = format!("{with:.0} % (without Plimsoll {without:.0} %)");
    report.row(title, "> 95 %", figure, with > 95.0);
    chart::draw(&curves);
    report.goodput(curves);
}

fn run(mode: &str) -> Vec<Point> {
    let names: Vec<String> = (1..=ORDINARY)
        .map(|number| format!("shop-{number:02}"))
        .collect();
    let mut tenants = String::from("tenants:\n  default: { weight: 1.0 }\n");
    for name in names.iter().map(String::as_str).chain([HOT]) {
        writeln!(tenants, "  {name}: {{ weight: 1.0 }}").unwrap();
    }
    let mut fleet = Fleet::start_with(&policy(LIMIT, mode, false), &tenants, &SERVICE);

    let steps: Vec<(Duration, f64)> = (0..).map(|number| STEP * number).zip(HOT_RPS).collect();
    let (even, hot) = (
        ORDINARY_RPS * ORDINARY as f64,
        format!("{HOT}={}", schedule(&steps)),
    );
    let flags = [
        "--tenant",
        &names.join(","),
        "--rps",
        &even.to_string(),
        "--hot",
        &hot,
    ];
    fleet.start_load_evenly(&[&flags[..], &["--timeout", TIMEOUT, "--every", "500ms"]].concat());
    sleep(STEP * HOT_RPS.len() as u32 + Duration::from_secs(1));
    let lines = fleet.load_lines();
    let not_sent = fleet.stop_load()[0]["not_sent"].as_u64();
    assert_eq!(not_sent, Some(0), "the load generator could not keep up");
    steps
        .iter()
        .map(|(from, _)| Point::between(&lines, *from + LEFT_OUT, *from + STEP))
        .collect()
}

impl Point {
    fn between(lines: &[Value], from: Duration, until: Duration) -> Self {
        let number = |value: &Value| value.as_f64().unwrap();
        let at = |moment: Duration| {
            lines
                .iter()
                .find(|line| number(&line["at_s"]) >= moment.as_secs_f64())
                .unwrap()
        };
        let (first, last) = (at(from), at(until));
        let rate = |read: &dyn Fn(&Value) -> f64| {
            (read(last) - read(first)) / (number(&last["at_s"]) - number(&first["at_s"]))
        };
        let all = |figure: &'static str| move |line: &Value| line[figure].as_f64().unwrap();
        let ordinary = |figure: &'static str| {
            move |line: &Value| all(figure)(line) - line["tenants"][HOT][figure].as_f64().unwrap()
        };
        Self {
            offered: rate(&all("sent")),
            useful: rate(&all("served")),
            ordinary_offered: rate(&ordinary("sent")),
            ordinary_useful: rate(&ordinary("served")),
        }
    }
}
