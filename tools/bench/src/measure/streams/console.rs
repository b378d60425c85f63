//! Viewers of the console of a controller with a thousand buckets: processor time, memory, and the age of directives, beside
//! a controller with the same load and no viewers.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use plimsoll_testing::fleet::{metric, start_aggregator, start_controller};
use plimsoll_testing::process::{Process, http_get};
use tempfile::TempDir;

use super::Streams;
use crate::measure::report::Report;
use crate::streams::bucket;
use crate::streams::process::{processor_time, resident_bytes};

const BUCKETS: usize = 1_000;
const CLIENTS: usize = 2;
/// Below the sum of what the clients offer to a bucket.
const LIMIT: usize = 1;
const FLAGS: [&str; 3] = ["--names=3", "--buckets=1000", "--rps=1000"];
const VIEWERS: usize = 10;
const EVERY: Duration = Duration::from_secs(1);
const SETTLE: Duration = Duration::from_secs(60);
const VIEWED: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(100);
const CORE_MAX: f64 = 0.05;
const GROWTH_MAX_MIB: f64 = 20.0;

/// A controller with its zone and load.
struct Loaded {
    controller: Process,
    zone: Process,
    _load: Streams,
    _directory: TempDir,
}

/// Costs of a controller over a span.
struct Costs {
    cores: f64,
    grown_mib: f64,
    /// The greatest age of directives at the aggregator, in seconds.
    age_s: f64,
}

pub(crate) fn measure(report: &mut Report) {
    let [with, without] = [(); 2].map(|()| Loaded::start());
    sleep(SETTLE);
    let admin = with.controller.address("admin");
    let (frames, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    let [viewed, alone] = scope(|scope| {
        for _ in 0..VIEWERS {
            scope.spawn(|| view(admin, &frames, &ended));
        }
        // Its answers fill the buffers of its connection.
        let _reads_nothing = open(admin);
        let costs = costs([&with, &without], VIEWED);
        ended.store(true, Ordering::Relaxed);
        costs
    });

    let title = |what: &str| format!("{BUCKETS} buckets, {VIEWERS} viewers for 10 min: {what}");
    let cores = viewed.cores - alone.cores;
    let figure = format!(
        "{:.1} % of a core more ({:.1} % without)",
        cores * 100.0,
        alone.cores * 100.0
    );
    report.row(
        &title("processor time"),
        "<= 5 % of a core",
        figure,
        cores <= CORE_MAX,
    );
    let grown = viewed.grown_mib - alone.grown_mib;
    let figure = format!(
        "{grown:+.1} MiB ({:.1} MiB without: the history of refusals)",
        alone.grown_mib
    );
    report.row(
        &title("memory"),
        "<= +20 MiB",
        figure,
        grown <= GROWTH_MAX_MIB,
    );
    let figure = format!("{:.2} s ({:.2} s without)", viewed.age_s, alone.age_s);
    let is_on_time = viewed.age_s <= alone.age_s.max(1.0) + 0.5;
    let bar = "<= 0.5 s more";
    report.row(
        &title("greatest age of directives"),
        bar,
        figure,
        is_on_time,
    );
    let rate = frames.load(Ordering::Relaxed) as f64 / VIEWERS as f64 / VIEWED.as_secs_f64();
    let figure = format!("{rate:.2}/s beside one that reads nothing");
    report.row(
        &title("messages to each"),
        ">= 0.95/s",
        figure,
        rate >= 0.95,
    );
}

fn costs(fleets: [&Loaded; 2], span: Duration) -> [Costs; 2] {
    let used = |fleet: &Loaded| processor_time(fleet.controller.id()).unwrap();
    let mib =
        |fleet: &Loaded| resident_bytes(fleet.controller.id()).unwrap() as f64 / f64::from(1 << 20);
    let before = fleets.map(|fleet| (used(fleet), mib(fleet)));
    let (began, mut ages) = (Instant::now(), [0.0_f64; 2]);
    while began.elapsed() < span {
        for (fleet, age) in fleets.iter().zip(&mut ages) {
            *age = age.max(fleet.age_s());
        }
        sleep(POLL);
    }
    let span_s = began.elapsed().as_secs_f64();
    [0, 1].map(|at| Costs {
        cores: (used(fleets[at]) - before[at].0).as_secs_f64() / span_s,
        grown_mib: mib(fleets[at]) - before[at].1,
        age_s: ages[at],
    })
}

impl Loaded {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let line = |number| {
            format!(
                "  {}: {{ limit: {LIMIT}, mode: enforce }}\n",
                bucket(number)
            )
        };
        let buckets: String = (0..BUCKETS).map(line).collect();
        let policy =
            format!("buckets:\n{buckets}rollout: {{ require_gates: false }}\nguardrails: off\n");
        let tenants = "tenants: { default: { weight: 1 } }\n";
        let controller = start_controller(&directory, &policy, tenants);
        let zone = start_aggregator("zone-a", controller.address("listen"));
        Self {
            _load: Streams::below(&[(&zone, CLIENTS)], EVERY, &FLAGS.map(str::to_owned)),
            controller,
            zone,
            _directory: directory,
        }
    }

    /// Age of the directives at the aggregator.
    fn age_s(&self) -> f64 {
        let page = http_get(self.zone.address("admin"), "/metrics").1;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let updated = metric(
            &page,
            "plimsoll_directive_last_update_timestamp_seconds",
            "",
        );
        now.as_secs_f64() - updated
    }
}

fn open(admin: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(admin).unwrap();
    // Ports that are open on loopback serve no other host.
    write!(
        stream,
        "GET /console/stream HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    stream
}

/// Reads streams, each of which ends after a minute, and counts their messages.
fn view(admin: SocketAddr, frames: &AtomicUsize, ended: &AtomicBool) {
    while !ended.load(Ordering::Relaxed) {
        for line in BufReader::new(open(admin)).lines().map_while(Result::ok) {
            if ended.load(Ordering::Relaxed) {
                return;
            }
            if line.starts_with("data:") {
                frames.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
