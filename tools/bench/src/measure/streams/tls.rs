//! The cost of mutual TLS compared with plaintext, in one run: the memory of a stream, a storm of
//! reconnections with and without session resumption, and the time from a decision to the clients.

use std::time::Duration;

use plimsoll_testing::process::{Process, until};
use serde_json::Value;
use tempfile::TempDir;

use super::{Streams, aggregator_with, median};
use crate::measure::report::Report;
use crate::soak::succeed;
use crate::streams::process::resident_bytes;

const ZONE: &str = "default";
const SERVICE: &str = "streams";
const CLIENTS: usize = 1_000;
const STREAMS: [usize; 2] = [2_000, 10_000];
/// Interval of decisions, number of decisions before the first timed one, and number of timed ones.
const EVERY: Duration = Duration::from_secs(1);
const SETTLING: usize = 10;
const DECISIONS: usize = 15;
const PUSHED_WITHIN_MS: f64 = 100.0;
const MORE_KIB_MAX: f64 = 20.0;
const STORM_S_MAX: f64 = 45.0;

#[derive(Clone, Copy)]
enum Link<'a> {
    Plain,
    /// Every client keeps its sessions.
    Resumed(&'a Certificates),
    /// Every client forgets its sessions with its connection.
    Full(&'a Certificates),
}

struct Certificates {
    aggregator: String,
    clients: String,
    _directory: TempDir,
}

struct Fleet {
    _aggregator: Process,
    tool: Streams,
    /// Resident memory of the aggregator before the clients connected.
    before: f64,
    streams: usize,
}

pub(crate) fn measure(report: &mut Report) {
    let certificates = Certificates::issue();
    let (plain, resumed, full) = (
        Link::Plain,
        Link::Resumed(&certificates),
        Link::Full(&certificates),
    );
    let [before, after] = [plain, resumed].map(|link| Fleet::start(link, CLIENTS).pushed());
    let title = format!("from a decision to {CLIENTS} clients");
    report.note(&format!("{title}, plaintext"), pushed(before));
    let is_met = after.1 <= PUSHED_WITHIN_MS;
    report.row(
        &format!("{title}, TLS"),
        &format!("p99 <= {PUSHED_WITHIN_MS} ms"),
        pushed(after),
        is_met,
    );

    for streams in STREAMS {
        let [before, after] = [plain, resumed].map(|link| Fleet::start(link, streams).cost());
        let [more, was] = [after.kib - before.kib, before.kib];
        let figure = format!(
            "{more:.1} KiB more: {:.1} KiB, plaintext {was:.1} KiB",
            after.kib
        );
        let title = format!("{streams} streams over TLS: memory of the aggregator for each");
        report.row(
            &title,
            &format!("< {MORE_KIB_MAX} KiB more"),
            figure,
            more < MORE_KIB_MAX,
        );
        let title = format!("{streams} streams: load of the aggregator");
        report.note(
            &title,
            format!("{}, plaintext {}", after.load(), before.load()),
        );
    }

    let streams = STREAMS[1];
    let title = format!("{streams} clients reconnect at once: until all streams are open");
    for (link, name) in [
        (plain, "plaintext"),
        (resumed, "TLS, sessions resumed"),
        (full, "TLS, full handshakes"),
    ] {
        let (took, used) = Fleet::start(link, streams).storm();
        let figure = format!("{took:.1} s, the aggregator used {used:.1} s of processor time");
        report.row(
            &format!("{title}, {name}"),
            &format!("<= {STORM_S_MAX} s"),
            figure,
            took <= STORM_S_MAX,
        );
    }
}

fn pushed((p50, p99): (f64, f64)) -> String {
    format!("p50 {p50:.0} ms, p99 {p99:.0} ms")
}

struct Cost {
    /// KiB of memory for each.
    kib: f64,
    cores: f64,
    /// Bytes/s of each client in both directions.
    bytes: [f64; 2],
}

impl Cost {
    fn load(&self) -> String {
        let [up, down] = self.bytes;
        format!(
            "{:.2} cores, {up:.0} B/s up and {down:.0} B/s down per client",
            self.cores
        )
    }
}

impl Fleet {
    fn start(link: Link<'_>, streams: usize) -> Self {
        let (scheme, of_aggregator, of_tool) = link.flags();
        let aggregator = aggregator_with(ZONE, "127.0.0.1:0", &of_aggregator);
        let before = resident_bytes(aggregator.id()).unwrap() as f64;
        let tool = Streams::start_with(scheme, &[(&aggregator, streams)], EVERY, &of_tool);
        assert!(tool.settle(SETTLING), "{streams} streams never are open");
        Self {
            _aggregator: aggregator,
            tool,
            before,
            streams,
        }
    }

    /// Medians of the times in ms until half and 99 % of the clients have applied a decision.
    fn pushed(&self) -> (f64, f64) {
        let lines = self.tool.watch(DECISIONS);
        (
            figure(&lines, "/decision/p50_ms"),
            figure(&lines, "/decision/p99_ms"),
        )
    }

    fn cost(&self) -> Cost {
        let lines = self.tool.watch(DECISIONS);
        let kib = (figure(&lines, "/resident_bytes") - self.before) / self.streams as f64 / 1024.0;
        let bytes =
            ["/up_bytes_per_client_s", "/down_bytes_per_client_s"].map(|path| figure(&lines, path));
        Cost {
            kib,
            cores: figure(&lines, "/cores"),
            bytes,
        }
    }

    /// Breaks all streams together. Returns the seconds until all are open again, and the seconds
    /// of processor time that the aggregator has used by then.
    fn storm(&self) -> (f64, f64) {
        let used = || {
            self.tool
                .lines()
                .pop()
                .map_or(f64::NAN, |line| figure(&[line], "/processor_s"))
        };
        let before = used();
        self.tool.0.signal("USR1");
        let took = until("the storm to be over", || {
            let line = self.tool.lines().pop()?["aggregators"][0].clone();
            (line["storms"] == 1).then(|| line["storm_s"].as_f64())?
        });
        (took, used() - before)
    }
}

/// Median of a figure of the aggregator over some lines.
fn figure(lines: &[Value], path: &str) -> f64 {
    median(
        lines
            .iter()
            .filter_map(|line| line["aggregators"][0].pointer(path)?.as_f64())
            .collect(),
    )
}

impl Link<'_> {
    fn flags(&self) -> (&'static str, Vec<&str>, Vec<&str>) {
        match self {
            Link::Plain => ("http", Vec::new(), Vec::new()),
            Link::Resumed(of) => (
                "https",
                vec!["--certs", &of.aggregator],
                vec!["--certs", &of.clients],
            ),
            Link::Full(of) => {
                let forgetful = vec!["--certs", &of.clients, "--forget-sessions"];
                ("https", vec!["--certs", &of.aggregator], forgetful)
            }
        }
    }
}

impl Certificates {
    fn issue() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let (ca, aggregator, clients) = (path("ca"), path("aggregator"), path("clients"));
        let issue = ["certs", "issue"];
        let of_service = [
            "service",
            "--zone",
            ZONE,
            "--service",
            SERVICE,
            "--ca",
            &ca,
            "--out",
            &clients,
        ];
        for args in [
            &["certs", "init", "--dir", &ca][..],
            &[
                &issue[..],
                &[
                    "aggregator",
                    "--zone",
                    ZONE,
                    "--ca",
                    &ca,
                    "--out",
                    &aggregator,
                ],
            ]
            .concat(),
            &[&issue[..], &of_service].concat(),
        ] {
            succeed(args);
        }
        Self {
            aggregator,
            clients,
            _directory: directory,
        }
    }
}
