//! Several aggregators in one zone, and services that start without any, on real processes and streams.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use crate::fleet::metric;
use crate::process::{Process, http_get, message, until};
use crate::turns::{IDLE, turn};

/// Enough buckets for each of two aggregators to be assigned some, on any ports.
const BUCKETS: usize = 12;

/// A controller, the aggregators of one zone, and a service that is configured with all of them.
struct Zone {
    controller: Process,
    aggregators: Vec<Process>,
    service: Process,
    requests: f64,
    directory: TempDir,
}

fn buckets() -> impl Iterator<Item = String> {
    (0..BUCKETS).map(|at| format!("bucket-{at}"))
}

fn aggregator(number: usize, controller: SocketAddr, listen: &str) -> Process {
    let (name, parent) = (format!("aggregator-{number}"), format!("http://{controller}"));
    let common = ["aggregator", "--zone", "a", "--name", &name, "--controller", &parent];
    Process::start(&[&common[..], &["--listen", listen, "--admin", "127.0.0.1:0"]].concat())
}

fn service(aggregators: &[SocketAddr], flags: &[&str]) -> Process {
    let aggregators: Vec<String> = aggregators.iter().map(|address| format!("http://{address}")).collect();
    let (aggregators, buckets) = (aggregators.join(","), buckets().collect::<Vec<_>>().join(","));
    let common = ["service", "--zone", "a", "--name", "service", "--listen", "127.0.0.1:0"];
    let targets = ["--aggregator", &aggregators, "--buckets", &buckets];
    Process::start(&[&common[..], &targets, flags].concat())
}

/// A directory with a policy that gives every bucket the same limit.
fn directory(limit: u32) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let policy = format!(
        "buckets: {{ \"bucket-*\": {{ limit: {limit}, mode: enforce }} }}\nrollout: {{ require_gates: false }}\n"
    );
    fs::write(directory.path().join("policy.yaml"), policy).unwrap();
    directory
}

fn controller(directory: &TempDir) -> Process {
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (policy, state) = (path("policy.yaml"), path("state"));
    let files = ["controller", "--policy", &policy, "--state-dir", &state];
    Process::start(&[&files[..], &["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]].concat())
}

fn page(service: &Process) -> String {
    http_get(service.address("listen"), "/metrics").1
}

/// Sends a request for every bucket, and returns how many were served.
fn send(service: &Process) -> usize {
    buckets().filter(|bucket| http_get(service.address("listen"), &format!("/{bucket}")).0 == 200).count()
}

impl Zone {
    fn start(aggregators: usize) -> Self {
        let directory = directory(1_000_000);
        let controller = controller(&directory);
        let parent = controller.address("listen");
        let aggregators: Vec<Process> =
            (0..aggregators).map(|number| aggregator(number, parent, "127.0.0.1:0")).collect();
        let addresses: Vec<SocketAddr> =
            aggregators.iter().map(|process| process.address("listen")).collect();
        let service = service(&addresses, &["--grace", "2s"]);
        Self { controller, aggregators, service, requests: 0.0, directory }
    }

    fn send(&mut self) {
        self.requests += send(&self.service) as f64;
    }

    /// Connection and number of buckets of each endpoint.
    fn endpoints(&self) -> Vec<(bool, f64)> {
        let page = page(&self.service);
        let of = |process: &Process| {
            let label = format!("endpoint=\"{}\"", process.address("listen"));
            let value = |name| metric(&page, name, &label);
            (value("plimsoll_endpoint_connected") == 1.0, value("plimsoll_endpoint_buckets"))
        };
        self.aggregators.iter().map(of).collect()
    }

    /// Sends requests until the endpoints are as wanted.
    fn until(&mut self, what: &str, wanted: impl Fn(&[(bool, f64)]) -> bool) -> Vec<(bool, f64)> {
        until(what, || {
            self.send();
            let endpoints = self.endpoints();
            wanted(&endpoints).then_some(endpoints)
        })
    }

    /// The requests of all buckets that the controller has counted.
    fn counted(&self) -> f64 {
        let (_, status) = http_get(self.controller.address("admin"), "/status");
        let status: Value = serde_json::from_str(&status).unwrap();
        let buckets = status["buckets"].as_object().unwrap();
        buckets.values().map(|bucket| bucket["offered"].as_f64().unwrap()).sum()
    }

    /// The unconfirmed requests of the running tiers.
    fn unconfirmed(&self) -> f64 {
        let pages = self.aggregators.iter().chain([&self.controller]);
        let pages = pages.map(|process| http_get(process.address("admin"), "/metrics").1);
        pages.map(|page| metric(&page, "plimsoll_counts_unconfirmed_total", "")).sum()
    }
}

#[test]
fn buckets_of_a_dead_aggregator_move_and_come_back_and_counts_balance() {
    let _turn = turn(IDLE);
    let mut zone = Zone::start(2);
    let before = zone.until("both aggregators to have buckets", |endpoints| {
        endpoints.iter().all(|(connected, buckets)| *connected && *buckets > 0.0)
    });
    assert_eq!(before.iter().map(|(_, buckets)| buckets).sum::<f64>(), BUCKETS as f64);
    until("requests to be counted", || {
        zone.send();
        (zone.counted() > 0.0).then_some(())
    });

    let address = zone.aggregators[1].address("listen");
    zone.aggregators[1].signal("KILL");
    let meanwhile = zone.until("its buckets to move", |endpoints| endpoints[1].1 == 0.0);
    assert_eq!(meanwhile, [(true, BUCKETS as f64), (false, 0.0)]);
    assert_eq!(metric(&page(&zone.service), "plimsoll_buckets_moved_total", ""), before[1].1);

    zone.aggregators[1].ended();
    zone.aggregators[1] = aggregator(1, zone.controller.address("listen"), &address.to_string());
    let after = zone.until("its buckets to come back", |endpoints| endpoints[1].1 > 0.0 && endpoints[1].0);
    let after = if after == before { after } else { zone.until("all to come back", |now| now == before) };
    assert_eq!(after, before);

    let (sent, decided) = (zone.requests, metric(&page(&zone.service), "plimsoll_decisions_total", ""));
    assert_eq!(sent, decided, "every decision is in the metrics of the service");
    let (counted, unconfirmed) = until("the counts to balance", || {
        let (counted, unconfirmed) = (zone.counted(), zone.unconfirmed());
        assert!(counted <= sent, "{counted} of {sent}: a request was counted twice");
        (counted + unconfirmed >= sent).then_some((counted, unconfirmed))
    });
    // At most the decisions between two roll-ups and those on their way, which only the killed aggregator
    // had.
    assert!(unconfirmed <= sent / 2.0, "{counted} of {sent} counted, {unconfirmed} unconfirmed");
    assert!(zone.directory.path().exists());
}

#[test]
fn dns_name_resolves_to_its_addresses() {
    let _turn = turn(IDLE);
    let directory = directory(0);
    let controller = controller(&directory);
    let aggregator = aggregator(0, controller.address("listen"), "127.0.0.1:0");
    let address = aggregator.address("listen");
    let name = format!("dns://localhost:{}", address.port());
    let common =
        ["service", "--zone", "a", "--listen", "127.0.0.1:0", "--buckets", "bucket-0", "--aggregator", &name];
    let service = Process::start(&common);
    let denied = || http_get(service.address("listen"), "/bucket-0").0 == 429;
    until("the directives of the aggregator", || denied().then_some(()));
    let page = page(&service);
    let endpoint = format!("endpoint=\"{address}\"");
    assert_eq!(metric(&page, "plimsoll_endpoint_buckets", &endpoint), 1.0, "{page}");
    assert_eq!(metric(&page, "plimsoll_resolve_failures_total", ""), 0.0);
}

#[test]
fn service_starts_from_cached_directives_without_an_aggregator() {
    let _turn = turn(IDLE);
    let directory = directory(0);
    let file: PathBuf = directory.path().join("directives");
    let flags = ["--directives", file.to_str().unwrap()];
    let controller = controller(&directory);
    let aggregator = aggregator(0, controller.address("listen"), "127.0.0.1:0");
    let address = aggregator.address("listen");
    let mut first = service(&[address], &flags);
    until("every bucket to be denied", || (send(&first) == 0).then_some(()));
    assert!(first.terminate().success());
    drop((aggregator, controller));

    let second = service(&[address], &flags);
    second.wait_for(|line| message(line) == Some("directive cache restored"));
    until("the cached directives to be in force", || (send(&second) == 0).then_some(()));
    let page = page(&second);
    assert_eq!(metric(&page, "plimsoll_directive_cache_in_use", ""), 1.0);
    assert!(page.contains("plimsoll_directive_cache_age_seconds "), "{page}");
    drop(second);

    fs::write(&file, "plimsoll directives 1 0000000000000000\n{}\n").unwrap();
    let third = service(&[address], &flags);
    third.wait_for(|line| {
        message(line).is_some_and(|message| message.starts_with("directive cache rejected"))
    });
    assert_eq!(send(&third), BUCKETS, "without directives, it admits and counts");
    let page = self::page(&third);
    assert_eq!(metric(&page, "plimsoll_directive_cache_rejected", "reason=\"torn\""), 1.0);
}

#[test]
fn cold_limit_holds_until_the_first_directive() {
    let _turn = turn(IDLE);
    // Nothing listens on the discard port.
    let service = service(&["127.0.0.1:9".parse().unwrap()], &["--cold-rps", "bucket-0=0,bucket-1=0"]);
    assert_eq!(send(&service), BUCKETS - 2);
    let page = page(&service);
    for (bucket, dropped) in [("bucket-0", 1.0), ("bucket-2", 0.0)] {
        let series: Vec<&str> = page.lines().filter(|line| line.contains(&format!("\"{bucket}\""))).collect();
        assert_eq!(metric(&series.join("\n"), "plimsoll_decisions_total", "result=\"guard_drop\""), dropped);
    }
}
