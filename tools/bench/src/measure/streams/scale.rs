//! A hundred thousand active tenants in each of ten buckets over two zones: the time of a tick,
//! memory, and traffic.

use std::thread::sleep;
use std::time::Duration;

use plimsoll_testing::fleet::{metric, start_aggregator, start_controller};
use plimsoll_testing::process::{Process, http_get};
use serde_json::Value;

use super::{Streams, median};
use crate::measure::report::Report;
use crate::streams::bucket;
use crate::streams::process::{processor_time, resident_bytes};

const BUCKETS: usize = 10;
const CLIENTS_PER_ZONE: usize = 20;
/// In each bucket.
const NAMES_PER_CLIENT: usize = 2_500;
const RPS_PER_CLIENT: usize = 2_500;
/// Load as a multiple of the limit.
const OFFERED: usize = 3;
const EVERY: Duration = Duration::from_secs(1);
/// Time until names are known and the young class is a minute old.
const SETTLE: Duration = Duration::from_secs(150);
const WATCH: usize = 60;
const TICK: Duration = Duration::from_millis(500);
const TICK_MAX_MS: f64 = 50.0;
const CONTROLLER_MAX_MIB: f64 = 512.0;
const AGGREGATOR_MAX_MIB: f64 = 1_024.0;

pub(crate) fn measure(report: &mut Report) {
    let directory = tempfile::tempdir().unwrap();
    let controller = start_controller(
        &directory,
        &policy(),
        "tenants: { default: { weight: 1 } }\n",
    );
    let zones =
        ["zone-a", "zone-b"].map(|zone| start_aggregator(zone, controller.address("listen")));
    let tool = Streams::below(
        &zones.each_ref().map(|zone| (zone, CLIENTS_PER_ZONE)),
        EVERY,
        &flags(),
    );
    sleep(SETTLE);
    let (before, mut late) = (processor_time(controller.id()), 0.0_f64);
    let from = tool.lines().len();
    while tool.lines().len() < from + WATCH {
        sleep(EVERY / 2);
        late = zones.iter().map(late_ms).fold(late, f64::max);
    }
    let used = processor_time(controller.id())
        .zip(before)
        .map(|(after, before)| (after - before).as_secs_f64());
    let lines = &tool.lines()[from..];
    let of = |path: &str| -> Vec<f64> {
        let aggregators = lines
            .iter()
            .flat_map(|line| line["aggregators"].as_array().into_iter().flatten());
        aggregators
            .filter_map(|aggregator| aggregator.pointer(path)?.as_f64())
            .collect()
    };
    let most = |path: &str| of(path).into_iter().fold(0.0, f64::max);
    let mib = |bytes: f64| bytes / f64::from(1 << 20);

    let names = 2 * CLIENTS_PER_ZONE * NAMES_PER_CLIENT;
    let title = |what: &str| format!("{names} tenants x {BUCKETS} buckets over two zones: {what}");
    report.row(
        &title("longest delay of an aggregator's tick"),
        "<= 50 ms",
        format!("{late:.0} ms"),
        late <= TICK_MAX_MS,
    );
    let tick = used.map_or(f64::NAN, |used| {
        used / WATCH as f64 * TICK.as_secs_f64() * 1e3
    });
    report.row(
        &title("controller, processor time of a tick"),
        "<= 50 ms",
        format!("{tick:.1} ms"),
        tick <= TICK_MAX_MS,
    );
    let held = mib(resident_bytes(controller.id()).map_or(f64::NAN, |bytes| bytes as f64));
    report.row(
        &title("controller, memory"),
        "<= 512 MiB",
        format!("{held:.0} MiB"),
        held <= CONTROLLER_MAX_MIB,
    );
    let held = mib(most("/resident_bytes"));
    report.row(
        &title("aggregator, memory"),
        "<= 1 GiB",
        format!("{held:.0} MiB"),
        held <= AGGREGATOR_MAX_MIB,
    );
    let admitted = part(lines);
    let holds = (0.97..=1.03).contains(&admitted);
    report.row(
        &title("admitted / limit"),
        "0.97 to 1.03",
        format!("{admitted:.3}"),
        holds,
    );
    let figure = format!(
        "{:.0} B/s up and {:.0} B/s down, {:.2} cores of an aggregator",
        median(of("/up_bytes_per_client_s")),
        median(of("/down_bytes_per_client_s")),
        median(of("/cores"))
    );
    report.note(&title("cost of a client"), figure);
    let lost = most("/lost");
    report.row(&title("streams lost"), "0", format!("{lost}"), lost == 0.0);
}

/// The load exceeds all buckets.
fn policy() -> String {
    let limit = 2 * CLIENTS_PER_ZONE * RPS_PER_CLIENT / BUCKETS / OFFERED;
    let line = |number| {
        format!(
            "  {}: {{ limit: {limit}, mode: enforce }}\n",
            bucket(number)
        )
    };
    let buckets: String = (0..BUCKETS).map(line).collect();
    format!("buckets:\n{buckets}rollout: {{ require_gates: false }}\nguardrails: off\n")
}

fn flags() -> Vec<String> {
    let numbers = [
        ("names", NAMES_PER_CLIENT),
        ("buckets", BUCKETS),
        ("rps", RPS_PER_CLIENT),
    ];
    numbers
        .map(|(flag, number)| format!("--{flag}={number}"))
        .to_vec()
}

fn late_ms(aggregator: &Process) -> f64 {
    metric(
        &http_get(aggregator.address("admin"), "/metrics").1,
        "plimsoll_tick_late_seconds",
        "",
    ) * 1e3
}

/// Returns the admitted part of the limits from the first line to the last.
fn part(lines: &[Value]) -> f64 {
    let of = |line: &Value, figure: &str| -> f64 {
        line["aggregators"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|each| each[figure].as_f64())
            .sum()
    };
    let Some((first, last)) = lines.first().zip(lines.last()) else {
        return f64::NAN;
    };
    let [asked, admitted] =
        ["asked", "admitted"].map(|figure| of(last, figure) - of(first, figure));
    admitted * OFFERED as f64 / asked
}
