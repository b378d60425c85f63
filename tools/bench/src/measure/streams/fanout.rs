//! Fan-out: the time from a decision to the clients of one aggregator, and the cost of a client, by
//! number of clients.

use std::time::Duration;

use plimsoll_testing::fleet::metric;
use plimsoll_testing::process::http_get;
use serde_json::Value;

use super::{Streams, aggregator, median};
use crate::measure::report::Report;
use crate::streams::process::resident_bytes;

const STREAMS: [usize; 3] = [1_000, 5_000, 10_000];
/// Interval of decisions, long enough for each to be applied before the next.
const EVERY: Duration = Duration::from_secs(3);
/// Number of timed decisions, and of earlier ones for the aggregator to adapt its report interval.
const DECISIONS: usize = 7;
const SETTLING: usize = 5;

pub(crate) fn measure(report: &mut Report) {
    STREAMS
        .into_iter()
        .for_each(|streams| with(streams, report));
}

fn with(streams: usize, report: &mut Report) {
    let aggregator = aggregator("a", "127.0.0.1:0");
    let before = resident_bytes(aggregator.id()).unwrap() as f64;
    let tool = Streams::start(&[(&aggregator, streams)], EVERY);
    let title = format!("{streams} streams on one aggregator");
    if !tool.settle(SETTLING) {
        return report.row(&title, "all are open", "they never are".to_owned(), false);
    }
    let lines = tool.watch(DECISIONS);
    let of = |path: &str| -> Vec<f64> {
        lines
            .iter()
            .filter_map(|line| line["aggregators"][0].pointer(path)?.as_f64())
            .collect()
    };
    let p99 = median(of("/decision/p99_ms"));
    let figure = format!(
        "p50 {:.0} ms, p99 {p99:.0} ms, last {:.0} ms",
        median(of("/decision/p50_ms")),
        median(of("/decision/max_ms"))
    );
    let title = format!("{title}: from a decision to the clients");
    match streams {
        1_000 => report.row(&title, "p99 <= 100 ms", figure, p99 <= 100.0),
        _ => report.note(&title, figure),
    }
    let page = http_get(aggregator.address("admin"), "/metrics").1;
    let interval = metric(&page, "plimsoll_report_interval_seconds", "") * 1e3;
    let memory = (median(of("/resident_bytes")) - before) / streams as f64 / 1024.0;
    let figure = format!(
        "interval {interval:.0} ms, {:.2} cores, {memory:.0} KiB per stream, {:.0} B/s up and {:.0} B/s down per client",
        median(of("/cores")),
        median(of("/up_bytes_per_client_s")),
        median(of("/down_bytes_per_client_s"))
    );
    report.note(
        &format!("{streams} streams on one aggregator: cost"),
        figure,
    );
    let lost = lines
        .last()
        .and_then(|line: &Value| line["aggregators"][0]["lost"].as_u64());
    let figure = lost.map_or("unknown".to_owned(), |lost| lost.to_string());
    report.row(
        &format!("{streams} streams on one aggregator: streams lost"),
        "0",
        figure,
        lost == Some(0),
    );
}
