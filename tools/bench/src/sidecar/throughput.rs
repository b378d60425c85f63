//! Throughput and p99 of a sidecar next to servers that do nothing, which take turns on one core
//! while the load has the other.

use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_testing::fleet::metric;
use plimsoll_testing::process::{Process, http_get};

use super::cores::{SERVER, on_core};
use super::h2load::{Answers, Requests, Throughput};
use super::{HALF, Limited, OPEN};
use crate::measure::report::Report;
use crate::streams::process::processor_time;

/// Number of rounds (the median counts) and time of each server in a round.
const ROUNDS: usize = 5;
const DURING: Duration = Duration::from_secs(2);
const WARM_UP: Duration = Duration::from_secs(1);
/// Minimum throughput of the rate limit service and of HTTP, and maximum p99, as ratios.
const RLS_MIN: f64 = 0.85;
const HTTP_MIN: f64 = 0.80;
const P99_MAX: f64 = 1.2;

#[derive(Clone, Copy)]
struct Turn {
    throughput: Throughput,
    answers: Answers,
    /// Processor time of the server for each answer, in microseconds.
    processor_us: f64,
}

pub(super) fn measure(report: &mut Report) {
    let limited = Limited::start();
    let nothing = on_core(SERVER, || {
        Process::spawn_program("plimsoll-bench", &["nothing"])
    });
    let listening = nothing.wait_for(|line| line["fields"]["listen"].is_string());
    let of_nothing = |name: &str| {
        listening["fields"][name]
            .as_str()
            .unwrap()
            .parse::<SocketAddr>()
            .unwrap()
    };
    let (nothing_rls, nothing_http) = (of_nothing("listen"), of_nothing("http"));
    let sidecar = &limited.sidecar;
    let (rls, http) = (sidecar.address("listen"), sidecar.address("http"));

    let directory = &limited.directory;
    let whats = [
        (
            "RLS, all admitted",
            RLS_MIN,
            Requests::rls(directory, OPEN),
            nothing_rls,
            rls,
        ),
        (
            "RLS, half refused",
            RLS_MIN,
            Requests::rls(directory, HALF),
            nothing_rls,
            rls,
        ),
        (
            "POST /v1/check, all admitted",
            HTTP_MIN,
            Requests::check(directory, OPEN),
            nothing_http,
            http,
        ),
        (
            "POST /v1/check, half refused",
            HTTP_MIN,
            Requests::check(directory, HALF),
            nothing_http,
            http,
        ),
        (
            "GET /nginx, all admitted",
            HTTP_MIN,
            Requests::nginx(OPEN),
            nothing_http,
            http,
        ),
        (
            "GET /nginx, half refused",
            HTTP_MIN,
            Requests::nginx(HALF),
            nothing_http,
            http,
        ),
    ];
    for (what, min, requests, of_nothing, of_sidecar) in whats {
        let unlimited = requests.send(of_sidecar, DURING).per_second;
        limited.limit_half(unlimited / 2.0);
        let _settles = requests.send(of_sidecar, DURING);
        let before = refusals(sidecar);
        let rounds: Vec<[Turn; 2]> = (0..ROUNDS)
            .map(|_| {
                [
                    turn(&nothing, of_nothing, &requests),
                    turn(sidecar, of_sidecar, &requests),
                ]
            })
            .collect();
        let after = refusals(sidecar);
        let refused = (after[1] - before[1]) / (after[0] - before[0]);
        limited.limit_half(super::NO_LIMIT);
        add_rows(report, what, min, &rounds, refused);
    }
}

fn refusals(sidecar: &Process) -> [f64; 2] {
    let (_, page) = http_get(sidecar.address("admin"), "/metrics");
    ["", "result=\"drop\""].map(|label| metric(&page, "plimsoll_decisions_total", label))
}

fn turn(server: &Process, to: SocketAddr, requests: &Requests) -> Turn {
    let used = || processor_time(server.id()).unwrap().as_secs_f64();
    let before = used();
    let throughput = requests.send(to, DURING);
    let answered = throughput.per_second * (DURING + WARM_UP).as_secs_f64();
    let processor_us = (used() - before) * 1e6 / answered;
    Turn {
        throughput,
        answers: requests.send_and_log(to, DURING),
        processor_us,
    }
}

fn add_rows(report: &mut Report, what: &str, min: f64, rounds: &[[Turn; 2]], refused: f64) {
    let each = |figure: fn(&Turn) -> f64| {
        let [nothing, sidecar] =
            [0, 1].map(|at| median(rounds.iter().map(|round| figure(&round[at]))));
        let ratio = median(
            rounds
                .iter()
                .map(|[nothing, sidecar]| figure(sidecar) / figure(nothing)),
        );
        (nothing, sidecar, ratio)
    };
    let (nothing, sidecar, ratio) = each(|turn| turn.throughput.per_second);
    let (nothing_us, sidecar_us, _) = each(|turn| turn.processor_us);
    let share = if what.contains("half") {
        format!(", {:.0} % refused", refused * 100.0)
    } else {
        String::new()
    };
    let figure = format!(
        "{:.1} % ({sidecar:.0}/s beside {nothing:.0}/s, {sidecar_us:.1} us beside {nothing_us:.1} us of processor time{share})",
        ratio * 100.0
    );
    let bar = format!(">= {:.0} %", min * 100.0);
    report.row(
        &format!("{what}: requests/s beside a server that does nothing"),
        &bar,
        figure,
        ratio >= min,
    );
    let (nothing, sidecar, ratio) = each(|turn| turn.answers.p99_us);
    let figure = format!(
        "{ratio:.2} x ({:.2} ms beside {:.2} ms)",
        sidecar / 1e3,
        nothing / 1e3
    );
    let title = format!("{what}: p99 beside a server that does nothing");
    if what.starts_with("RLS") {
        report.row(&title, &format!("<= {P99_MAX} x"), figure, ratio <= P99_MAX);
    } else {
        report.note(&title, figure);
    }
    let failed: f64 = rounds
        .iter()
        .flatten()
        .map(|turn| turn.throughput.failed)
        .sum();
    report.row(
        &format!("{what}: requests without a proper answer"),
        "0",
        failed.to_string(),
        failed == 0.0,
    );
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    crate::measure::median(figures.collect())
}
