//! A bucket at half of its limit advances from shadow to canary to enforce by its gates, without an
//! operator and without a refusal.

use std::thread::sleep;
use std::time::{Duration, Instant};

use plimsoll_testing::fleet::BUCKET;

use crate::measure::report::Report;
use crate::measure::shadow::fleet;
use crate::measure::{LIMIT, WINDOW};

/// Time of each gate in seconds. The maximum time to enforce leaves a stage as long again.
const GATE_S: f64 = 20.0;
const MAX: Duration = Duration::from_secs(80);
/// Maximum gap between two lines of a load generator on time. Delayed requests arrive together,
/// which is other traffic.
const LINES: Duration = Duration::from_millis(100);
const GAP_MAX_S: f64 = 0.15;

pub(super) fn measure(report: &mut Report) {
    // Half of the instances are in canary. The latencies of a shared machine differ by more than
    // the default.
    let policy = format!(
        "buckets:\n  {BUCKET}: {{ limit: {LIMIT}, mode: shadow }}\n\
         rollout:\n  auto_promote: true\n  canary_percent: 50\n  shadow: {{ min_days: {}, window_h: {} }}\n  \
         canary: {{ min_hours: {}, window_min: {}, max_p99_delta_ms: 400 }}\n",
        GATE_S / 86_400.0,
        GATE_S / 3_600.0,
        GATE_S / 3_600.0,
        GATE_S / 60.0
    );
    let mut fleet = fleet(&policy);
    let (rps, every) = ((LIMIT / 2).to_string(), format!("{}ms", LINES.as_millis()));
    fleet.start_load_evenly(&[
        "--rps",
        &rps,
        "--tenant",
        "acme,corner-shop",
        "--every",
        &every,
    ]);
    let started = Instant::now();
    let mut stages = Vec::new();
    while started.elapsed() < MAX && stages.last().is_none_or(|(stage, _)| stage != "enforce") {
        sleep(LINES);
        let status = fleet.status().unwrap();
        let stage = status["buckets"][BUCKET]["mode"]
            .as_str()
            .unwrap_or("none")
            .to_owned();
        if stages.last().is_none_or(|(last, _)| *last != stage) {
            stages.push((stage, started.elapsed().as_secs()));
        }
    }
    sleep(WINDOW);
    let lines = fleet.load_lines();
    fleet.stop_load();
    let enforced = stages.last().is_some_and(|(stage, _)| stage == "enforce");
    let path: Vec<String> = stages
        .iter()
        .map(|(stage, at)| format!("{stage} at {at} s"))
        .collect();
    let what = "50 % of the limit: from shadow to enforce by its gates of 20 s each";
    report.row(
        what,
        &format!("<= {} s", MAX.as_secs()),
        path.join(", "),
        enforced,
    );

    let (mut sent, mut refused, mut late) = (0.0, 0.0, 0);
    for pair in lines.windows(2) {
        let since =
            |figure: &str| pair[1][figure].as_f64().unwrap() - pair[0][figure].as_f64().unwrap();
        if since("at_s") > GAP_MAX_S {
            late += 1;
        } else {
            (sent, refused) = (sent + since("sent"), refused + since("refused"));
        }
    }
    let figure = format!("{refused} of {sent}, the load generator was late {late} times");
    report.row(
        "50 % of the limit: refused on the way and 20 s after",
        "0",
        figure,
        refused == 0.0,
    );
}
