//! Reconnect storm: an aggregator restarts and nine thousand clients return to it, while a thousand
//! clients of another aggregator must not be delayed. A decision here is a change of the limit.

use std::time::{Duration, Instant};

use super::starved::seconds;
use super::{Streams, aggregator, median};
use crate::measure::report::Report;

const ON_A: usize = 9_000;
const ON_B: usize = 1_000;
const EVERY: Duration = Duration::from_secs(1);
/// Minimum number of lines with all clients connected before the outage.
const SETTLING: usize = 10;
/// Outage of A. Afterwards, its clients have reached their longest backoff.
const OUTAGE: Duration = Duration::from_secs(30);
const MOST_BACK_WITHIN: Duration = Duration::from_secs(15);
const ALL_BACK_WITHIN: Duration = Duration::from_secs(45);

pub(crate) fn measure(report: &mut Report) {
    let mut a = aggregator("a", "127.0.0.1:0");
    let b = aggregator("b", "127.0.0.1:0");
    let tool = Streams::start(&[(&a, ON_A), (&b, ON_B)], EVERY);
    if !tool.settle(SETTLING) {
        return report.row(
            "9,000 clients on aggregator A and 1,000 on B",
            "all are connected",
            "they never are".to_owned(),
            false,
        );
    }
    let listen = a.address("listen").to_string();
    let begin = tool.lines().len();
    a.kill_9();
    tool.watch((OUTAGE.as_millis() / EVERY.as_millis()) as usize);
    let _a = aggregator("a", &listen);
    let listens = Instant::now();
    let (mut most, mut all) = (None, None);
    while all.is_none() && listens.elapsed() < ALL_BACK_WITHIN {
        let line = tool.watch(1).pop().unwrap();
        let back = line["aggregators"][0]["connected"]
            .as_u64()
            .unwrap_or_default() as usize;
        let at = listens.elapsed();
        most = most.or((back * 100 >= ON_A * 95).then_some(at));
        all = all.or((back == ON_A).then_some(at));
    }
    let lines = &tool.lines()[begin..];
    let of_b = || lines.iter().map(|line| &line["aggregators"][1]);
    let p99s: Option<Vec<f64>> = of_b().map(|b| b["decision"]["p99_ms"].as_f64()).collect();
    let p99s = p99s
        .filter(|_| of_b().all(|b| b["connected"] == ON_B))
        .unwrap_or_default();
    let worst = p99s.iter().copied().reduce(f64::max).unwrap_or(f64::NAN);
    let figure = format!(
        "p99 {worst:.0} ms of the worst decision, {:.0} ms of the median one",
        median(p99s)
    );
    let title = "9,000 clients lose aggregator A and return: from a decision to the 1,000 clients of B, which all stay";
    report.row(title, "p99 <= 250 ms", figure, worst <= 250.0);
    let title = format!(
        "A down for {} s: time until 95 % of its clients are connected after it listens",
        OUTAGE.as_secs()
    );
    report.row(
        &title,
        "<= 15 s",
        seconds(most),
        most.is_some_and(|most| most <= MOST_BACK_WITHIN),
    );
    report.row(
        "time until all of them are connected",
        "<= 45 s",
        seconds(all),
        all.is_some_and(|all| all <= ALL_BACK_WITHIN),
    );
    let last = lines.last().unwrap();
    let waited = last["decisions_waited"].as_u64();
    let figure = format!("{} of {}", last["decisions_waited"], last["decided"]);
    report.row(
        "decisions that made their thread wait, over the whole run",
        "0",
        figure,
        waited == Some(0),
    );
}
