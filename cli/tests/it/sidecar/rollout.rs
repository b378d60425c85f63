//! Rollouts behind a sidecar: its callers report no latency, so the gates rest on refusals and say so; or they report
//! it, and a slow canary fails.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use plimsoll_core::names::Name;
use plimsoll_core::rollout::{Cohort, Percent};
use serde_json::{Value, json};

use super::Fleet;
use crate::kill::admin;
use crate::process::{message, run, until};
use crate::turns::turn;

/// The name of the sidecar, on which the keys of its canaries depend.
const NAME: &str = "edge-1";
const PERCENT: f64 = 50.0;
const TENANTS: u32 = 16;
/// The time between two batches of the caller, each with one request of every tenant for every bucket.
const PERIOD: Duration = Duration::from_millis(100);
const NOT_COMPARED: &str = "latency is not compared: no instance reports it";

/// Gates of two seconds with data.
const ROLLOUT: &str = "rollout:\n  canary_percent: 50\n  shadow: { min_days: 0.00002, window_h: 0.002 }\n  \
                       canary: { min_hours: 0.0005, window_min: 0.1, max_p99_delta_ms: 400 }\n  min_samples: 40\n";

/// A service in another language: asks about each request, and may report the response.
struct Caller {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Caller {
    /// Starts the requests of all tenants for these buckets. The latency of each in milliseconds, by whether its key
    /// is in the canary, is reported; without latencies nothing is.
    fn start(address: SocketAddr, buckets: &'static [&'static str], latency_ms: Option<[u32; 2]>) -> Self {
        let (stop, stopped) = mpsc::channel();
        let call = move || {
            let keys = || {
                buckets
                    .iter()
                    .flat_map(|bucket| (0..TENANTS).map(move |tenant| (*bucket, format!("t{tenant}"))))
            };
            let requests: Vec<Value> =
                keys().map(|(bucket, tenant)| json!({ "bucket": bucket, "tenant": tenant })).collect();
            let report = |(bucket, tenant): (&str, String), [inside, outside]: [u32; 2]| {
                let latency = if is_in_canary(bucket, &tenant) { inside } else { outside };
                json!({ "bucket": bucket, "tenant": tenant, "status": 200, "latency_ms": latency })
            };
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                post(address, "/v1/check", &json!({ "requests": requests }));
                if let Some(latency_ms) = latency_ms {
                    let reports: Vec<Value> = keys().map(|key| report(key, latency_ms)).collect();
                    post(address, "/v1/report", &json!({ "reports": reports }));
                }
            }
        };
        Self { stop: Some(stop), thread: Some(thread::spawn(call)) }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_none_or(|ended| ended.is_ok()), "the caller failed");
    }
}

fn is_in_canary(bucket: &str, tenant: &str) -> bool {
    let cohort = Cohort { percent: Percent::new(PERCENT).unwrap(), salt: Cohort::salt_of(bucket) };
    cohort.contains_key(&Name::new(NAME).unwrap(), tenant)
}

fn post(address: SocketAddr, path: &str, body: &Value) {
    let body = body.to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 20"), "{path}: {answer}");
}

fn fleet(buckets: &str) -> Fleet {
    let policy = format!("buckets:\n{buckets}{ROLLOUT}");
    Fleet::start(&policy, "tenants: { default: {} }\n", None, &["--name", NAME])
}

/// Runs a rollout command, and returns its exit code and output.
fn rollout(fleet: &Fleet, args: &[&str]) -> (Option<i32>, String) {
    let controller = admin(&fleet.controller);
    let done = run(&[&["rollout"], args, &["--controller", &controller]].concat());
    (done.status.code(), String::from_utf8([done.stdout, done.stderr].concat()).unwrap())
}

fn rollout_json(fleet: &Fleet, args: &[&str]) -> Vec<Value> {
    let (code, output) = rollout(fleet, &[args, &["--output", "json"]].concat());
    assert_eq!(code, Some(0), "{args:?}: {output}");
    serde_json::from_str(&output).unwrap()
}

fn status(fleet: &Fleet, bucket: &str) -> Value {
    rollout_json(fleet, &["status"]).into_iter().find(|status| status["entry"] == bucket).unwrap()
}

/// Waits until the last change of a bucket is to this stage, and returns it.
fn changed(fleet: &Fleet, bucket: &str, to: &str) -> Value {
    until(&format!("{bucket} in {to}"), || {
        rollout_json(fleet, &["history", bucket]).pop().filter(|change| change["to"] == to)
    })
}

fn has(why: &Value, wanted: &str) -> bool {
    why.as_array().is_some_and(|why| why.iter().any(|one| one == wanted))
}

#[test]
fn bucket_without_any_latency_reaches_enforce_by_gates_that_say_so() {
    let _turn = turn(2 * TENANTS * 10);
    let fleet = fleet(
        "  auto: { limit: 1000000, mode: shadow, rollout: { auto_promote: true } }\n  \
         hand: { limit: 1000000, mode: shadow }\n",
    );
    let _caller = Caller::start(fleet.sidecar.address("http"), &["auto", "hand"], None);

    // By its gates alone.
    let change = changed(&fleet, "auto", "enforce");
    assert_eq!((&change["from"], &change["cause"]), (&"canary".into(), &"gate".into()));
    assert!(has(&change["why"], NOT_COMPARED), "{change}");
    let evidence = &change["evidence"];
    assert_eq!(evidence["latency_unreported"], true, "{change}");
    for side in ["canary", "control"] {
        let sums = &evidence[side];
        assert!(sums["offered"].as_u64() >= Some(40), "one sidecar has keys on both sides: {change}");
        assert_eq!((&sums["unobserved"], &sums["samples"]), (&sums["offered"], &0.into()), "{change}");
    }
    fleet.controller.wait_for(|line| {
        let why = line["fields"]["why"].as_str().unwrap_or_default();
        message(line) == Some("stage changed")
            && line["fields"]["entry"] == "auto"
            && why.contains(NOT_COMPARED)
    });

    // By an operator, who sees on what the gate rests.
    let promoted = |to: &str| {
        until(&format!("the gate to {to}"), || {
            let (code, output) = rollout(&fleet, &["promote", "hand"]);
            assert!(code == Some(0) || output.contains("--force --reason"), "{output}");
            (code == Some(0)).then_some(output)
        })
    };
    promoted("canary");
    let passed = until("the gate to pass", || {
        let status = status(&fleet, "hand");
        (status["stage"] == "canary" && status["gate"] == "pass").then_some(status)
    });
    assert!(has(&passed["why"], NOT_COMPARED), "{passed}");
    assert_eq!(fleet.status()["buckets"]["hand"]["latency_unreported"], true);
    let (_, text) = rollout(&fleet, &["status"]);
    assert!(text.contains(&format!("gate to enforce: pass\n    {NOT_COMPARED}\n")), "{text}");
    assert!(text.contains("no responses measured, ") && text.contains(" not observable"), "{text}");
    let output = promoted("enforce");
    assert!(output.contains(NOT_COMPARED), "{output}");
    let state = fleet.path("state").display().to_string();
    let audit = run(&["audit", "show", "--file", &state]);
    let audit = String::from_utf8(audit.stdout).unwrap();
    let recorded = audit.lines().filter(|line| line.contains(NOT_COMPARED));
    assert_eq!(recorded.count(), 2, "{audit}");
}

#[test]
fn slow_canary_fails_if_callers_report_latency() {
    let _turn = turn(TENANTS * 20);
    let fleet = fleet("  slow: { limit: 1000000, mode: canary }\n  fast: { limit: 1000000, mode: canary }\n");
    let http = fleet.sidecar.address("http");
    let _fast = Caller::start(http, &["fast"], Some([20, 20]));
    let _slow = Caller::start(http, &["slow"], Some([900, 20]));
    let change = changed(&fleet, "slow", "shadow");
    assert_eq!((&change["from"], &change["cause"]), (&"canary".into(), &"breach".into()));
    assert!(change["why"][0].as_str().unwrap().starts_with("p99 of the canary cohort is"), "{change}");
    assert!(change["evidence"]["canary"]["p99_us"].as_u64() > Some(850_000), "{change}");
    assert_eq!(change["evidence"]["latency_unreported"], false);

    let passed = until("the gate of an equally fast canary to pass", || {
        Some(status(&fleet, "fast")).filter(|status| status["gate"] == "pass")
    });
    assert!(!has(&passed["why"], NOT_COMPARED), "{passed}");
}
