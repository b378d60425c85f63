//! Limiters with real stores: a quota server of Plimsoll and Redis, reached as services reach them.

mod dies;
mod exact;
mod http;
mod same;
mod trust;

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use futures_util::FutureExt;
use plimsoll_client::internals::Decided;
use plimsoll_client::{FeedHandle, Limiter, Metrics, QuotaStore, Request};
use plimsoll_testing::fleet::{Fleet, TENANTS, metric};
use plimsoll_testing::is_installed;
use plimsoll_testing::process::{
    FREE_PORT, PATIENCE, Process, free_addresses, http_get, until_true,
};
use redis::{Client, Connection};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Time that a request waits for a store on a busy machine.
const PATIENT: Duration = Duration::from_secs(5);
const TENANT: &str = "acme";

/// Starts a controller and aggregators with separate quotas for some buckets, each as in a policy
/// file.
fn fleet(quotas: &[(&str, &str)]) -> Fleet {
    let definitions: String = quotas
        .iter()
        .map(|(bucket, quota)| format!("  of_{bucket}: {{ {quota} }}\n"))
        .collect();
    let buckets: String = quotas
        .iter()
        .map(|(bucket, _)| {
            format!("  {bucket}: {{ limit: 1000000, mode: enforce, quotas: [of_{bucket}] }}\n")
        })
        .collect();
    let policy = format!(
        "quotas:\n{definitions}buckets:\n{buckets}rollout: {{ require_gates: false }}\nguardrails: off\n"
    );
    Fleet::without_services(&policy, TENANTS)
}

/// Starts a demo service with a bucket `api` and these arguments of its store, and waits until it
/// has the quota.
fn service(fleet: &Fleet, store: &[&str]) -> Process {
    let aggregator = fleet.zones[0].aggregator.url("listen");
    let place = ["service", "--zone", "zone-a", "--aggregator", &aggregator];
    let serves = ["--listen", FREE_PORT, "--buckets", "api"];
    let service = Process::start(&[&place[..], &serves, store].concat());
    until_true("directives to bring the quota", || {
        http_get(service.address("listen"), "/status")
            .1
            .contains("of_api")
    });
    service
}

struct Instance {
    limiter: Limiter,
    feed: FeedHandle,
}

impl Instance {
    /// Starts a limiter, and waits until it has the quotas of these buckets.
    fn start(runtime: &Runtime, fleet: &Fleet, store: QuotaStore, buckets: &[&str]) -> Self {
        let _runtime = runtime.enter();
        let aggregator = fleet.zones[0].aggregator.url("listen");
        let builder = Limiter::builder("shop")
            .zone("zone-a")
            .aggregator(&aggregator);
        let (limiter, feed) = builder.quota_store(store).build().unwrap();
        for bucket in buckets {
            limiter.bucket(bucket).unwrap();
            until_true("directives to bring the quotas", || {
                limiter.has_quotas(bucket)
            });
        }
        Self { limiter, feed }
    }

    /// Decides about one request, which ends although its store may not answer.
    async fn decide(&self, bucket: &str) -> Decided {
        let request = Request::new(bucket, TENANT);
        let decided = self.limiter.explain(&request);
        tokio::time::timeout(PATIENCE, decided).await.unwrap()
    }

    /// Decides about one request immediately; `None` if it has to wait.
    fn decide_now(&self, bucket: &str) -> Option<Decided> {
        self.limiter
            .explain(&Request::new(bucket, TENANT))
            .now_or_never()
    }

    fn metric(&self, name: &str) -> f64 {
        metric(&Metrics::new(&self.limiter).text(), name, "")
    }
}

/// Number of a quota server's answers to a command.
fn operations(server: &Process, command: &str) -> f64 {
    let label = format!("command=\"{command}\"");
    server.metric("admin", "plimsoll_quota_operations_total", &label)
}

/// Asks a quota server for the tokens of a bucket that is refilled each hour.
fn left_at(connection: &mut Connection, bucket: &str, max: u64) -> u64 {
    let mut ask = redis::cmd("QUOTA.TAKE");
    ask.arg(format!("{{{TENANT}}}:of_{bucket}"))
        .arg(&[max, max, 3_600_000, 0, 0]);
    let rows: Vec<Vec<i64>> = ask.query(connection).unwrap();
    rows[0][1].try_into().unwrap()
}

struct Redis {
    process: Process,
    address: SocketAddr,
    /// Address for TLS if it has certificates.
    tls: SocketAddr,
    _directory: TempDir,
}

impl Redis {
    /// `None` if Redis is not installed.
    fn start(test: &str, arguments: &[&str]) -> Option<Self> {
        if !is_installed("redis-server", test) {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let [address, tls] = free_addresses();
        let [port, tls_port] = [address, tls].map(|address| address.port().to_string());
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.arg("--dir").arg(directory.path());
        command.args(["--port", &port]).args(arguments);
        if arguments.contains(&"--tls-cert-file") {
            command.args(["--tls-port", &tls_port]);
        }
        let process = Process::spawn_command(command);
        until_true("Redis to accept connections", || {
            process.output().contains("Ready to accept connections")
        });
        Some(Self {
            process,
            address,
            tls,
            _directory: directory,
        })
    }

    fn connect(&self, password: &str) -> Connection {
        let url = format!("redis://:{password}@{}", self.address);
        Client::open(url).unwrap().get_connection().unwrap()
    }
}
