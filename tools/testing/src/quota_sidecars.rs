//! Four sidecars that share one exact quota, with faults while callers use it up. The books of the
//! callers have the admitted requests, and the store the debits: the difference is lost.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::Client;
use tempfile::TempDir;

use crate::fleet::{TENANTS, start_aggregator, start_controller};
use crate::process::{FREE_PORT, Process, until_true};

/// No refill happens in a test.
pub const MAX: u64 = 10_000;
pub const LEASE: u64 = 20;
const EVERY_MS: u64 = 86_400_000;
pub const SIDECARS: usize = 4;
const CALLERS_EACH: usize = 2;
/// Number of refusals in a row that a caller takes for a used-up quota, if the store has nothing
/// left.
const REFUSED_IN_A_ROW: u32 = 100;
const STALLS_EVERY: Duration = Duration::from_millis(500);

/// Events while the quota is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No fault: all sidecars have run before.
    None,
    /// All sidecars are as new.
    Fresh,
    /// Each sidecar in turn is ended by SIGTERM, and started again.
    Restarts,
    StoreKilled,
    /// The store pauses for this long, twice a second.
    StoreStalls(Duration),
    SidecarKilled,
}

/// Books of one quota that is used up.
#[derive(Clone, Copy, Debug)]
pub struct Books {
    /// Admissions by the callers' answers.
    pub admitted: u64,
    /// Requests without an answer: their tokens may be lost.
    pub unanswered: u64,
    /// Tokens that were debited, and neither used nor given back.
    pub lost: u64,
}

/// A controller, an aggregator, a quota server with durable debits, and sidecars that refuse
/// without it.
pub struct Sidecars {
    _controller: Process,
    aggregator: Process,
    store: Process,
    sidecars: Vec<Process>,
    directory: TempDir,
    tenants: u64,
    /// Tokens that sidecars had counted as lost before they were ended.
    lost_by_ended: f64,
}

impl Sidecars {
    pub fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let policy = format!(
            "quotas: {{ calls: {{ max: {MAX}, every: 24h, lease: {LEASE}, on_store_error: deny }} }}\n\
             buckets: {{ checkout: {{ limit: unlimited, mode: enforce, quotas: [calls] }} }}\n\
             rollout: {{ require_gates: false }}\nguardrails: off\n"
        );
        let controller = start_controller(&directory, &policy, TENANTS);
        let aggregator = start_aggregator("zone-a", controller.address("listen"));
        let store = store(&directory, FREE_PORT);
        let mut all = Self {
            _controller: controller,
            aggregator,
            store,
            sidecars: Vec::new(),
            directory,
            tenants: 0,
            lost_by_ended: 0.0,
        };
        all.sidecars = (0..SIDECARS)
            .map(|number| all.sidecar(number, FREE_PORT))
            .collect();
        all
    }

    /// Lets callers use up the quota of another tenant, with a fault on the way.
    pub fn use_up(&mut self, fault: Fault) -> Books {
        self.tenants += 1;
        let tenant = format!("tenant-{}", self.tenants);
        if fault == Fault::Fresh {
            (0..SIDECARS).for_each(|number| self.restart(number));
        }
        let addresses: Vec<SocketAddr> = self
            .sidecars
            .iter()
            .map(|sidecar| sidecar.address("http"))
            .collect();
        let (admitted, unanswered, is_used_up) =
            (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            let calling: Vec<_> = (0..SIDECARS * CALLERS_EACH)
                .map(|caller| {
                    let (address, tenant) = (addresses[caller % SIDECARS], &tenant);
                    let (admitted, unanswered, is_used_up) = (&admitted, &unanswered, &is_used_up);
                    scope.spawn(move || call(address, tenant, (admitted, unanswered), is_used_up))
                })
                .collect();
            let until_admitted = |part: u64| {
                until_true("requests to be admitted", || {
                    admitted.load(Ordering::Relaxed) >= MAX * part / 10
                });
            };
            until_admitted(1);
            match fault {
                Fault::None | Fault::Fresh => {}
                Fault::Restarts => (0..SIDECARS).for_each(|number| {
                    self.restart(number);
                    until_admitted(number as u64 + 2);
                }),
                Fault::StoreKilled => self.kill_store(),
                Fault::StoreStalls(length) => self.stall_store(&tenant, length),
                Fault::SidecarKilled => {
                    self.lost_by_ended += lost(&self.sidecars[0]);
                    self.sidecars[0].kill_9();
                    self.sidecars[0] = self.sidecar(0, &addresses[0].to_string());
                }
            }
            until_true("the store to have nothing left", || self.left(&tenant) == 0);
            is_used_up.store(true, Ordering::Relaxed);
            calling
                .into_iter()
                .for_each(|caller| caller.join().unwrap());
        });
        let [admitted, unanswered] = [admitted, unanswered].map(AtomicU64::into_inner);
        Books {
            admitted,
            unanswered,
            lost: MAX.saturating_sub(admitted),
        }
    }

    /// Returns the tokens that sidecars have counted as lost so far.
    pub fn counted_as_lost(&self) -> f64 {
        self.lost_by_ended + self.sidecars.iter().map(lost).sum::<f64>()
    }

    fn sidecar(&self, number: usize, http: &str) -> Process {
        let aggregator = self.aggregator.url("listen");
        let store = format!("plimsoll://{}", self.store.address("listen"));
        let name = format!("sidecar-{number}");
        let place = ["sidecar", "--zone", "zone-a", "--name", &name];
        let ports = ["--rls", FREE_PORT, "--http", http, "--admin", FREE_PORT];
        let parents = ["--aggregator", &aggregator, "--quota-store", &store];
        let rules = self.directory.path().join("rules.yaml");
        std::fs::write(
            &rules,
            "http: { tenant: { header: x-tenant }, rules: [{ bucket: checkout }] }\n",
        )
        .unwrap();
        let rules = ["--rules", rules.to_str().unwrap()];
        Process::start(&[&place[..], &ports, &parents, &rules].concat())
    }

    fn restart(&mut self, number: usize) {
        let http = self.sidecars[number].address("http").to_string();
        self.lost_by_ended += lost(&self.sidecars[number]);
        assert!(self.sidecars[number].terminate().success());
        self.sidecars[number] = self.sidecar(number, &http);
    }

    fn kill_store(&mut self) {
        let address = self.store.address("listen").to_string();
        self.store.kill_9();
        self.store = store(&self.directory, &address);
    }

    fn stall_store(&self, tenant: &str, length: Duration) {
        while self.left(tenant) > 0 {
            let began = Instant::now();
            self.store.signal("STOP");
            thread::sleep(length);
            self.store.signal("CONT");
            thread::sleep(STALLS_EVERY.saturating_sub(began.elapsed()));
        }
    }

    fn left(&self, tenant: &str) -> u64 {
        let url = format!("redis://{}", self.store.address("listen"));
        let mut ask = redis::cmd("QUOTA.TAKE");
        ask.arg(format!("{{{tenant}}}:calls"))
            .arg(&[MAX, MAX, EVERY_MS, 0, 0]);
        let rows: Vec<Vec<i64>> = ask
            .query(&mut Client::open(url).unwrap().get_connection().unwrap())
            .unwrap();
        rows[0][1].try_into().unwrap()
    }
}

fn lost(sidecar: &Process) -> f64 {
    sidecar.metric("admin", "plimsoll_quota_lost_tokens_total", "")
}

fn store(directory: &TempDir, listen: &str) -> Process {
    let data = directory.path().join("quota").display().to_string();
    let place = ["quota", "--data", &data, "--durability", "always"];
    Process::start(&[&place[..], &["--listen", listen, "--admin", FREE_PORT]].concat())
}

/// Sends requests to a sidecar, which may restart, until the quota is used up.
fn call(
    address: SocketAddr,
    tenant: &str,
    (admitted, unanswered): (&AtomicU64, &AtomicU64),
    is_used_up: &AtomicBool,
) {
    let question = format!("GET /check HTTP/1.1\r\nhost: a\r\nx-tenant: {tenant}\r\n\r\n");
    let mut refused = 0;
    while refused < REFUSED_IN_A_ROW || !is_used_up.load(Ordering::Relaxed) {
        let Ok(stream) = TcpStream::connect(address) else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        stream.set_nodelay(true).unwrap();
        let mut stream = BufReader::new(stream);
        while refused < REFUSED_IN_A_ROW || !is_used_up.load(Ordering::Relaxed) {
            if stream.get_mut().write_all(question.as_bytes()).is_err() {
                break;
            }
            match answer(&mut stream) {
                Some(200) => {
                    admitted.fetch_add(1, Ordering::Relaxed);
                    refused = 0;
                }
                Some(status) => {
                    assert_eq!(status, 429);
                    refused += 1;
                }
                None => {
                    unanswered.fetch_add(1, Ordering::Relaxed);
                    break;
                }
            }
        }
    }
}

/// Reads an answer; returns its status, or `None` if the connection ended before.
fn answer(stream: &mut BufReader<TcpStream>) -> Option<u16> {
    let (mut status, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        status = status.or_else(|| line.split(' ').nth(1)?.parse().ok());
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().ok()?;
        }
    }
    stream.read_exact(&mut vec![0; length]).ok()?;
    status
}
