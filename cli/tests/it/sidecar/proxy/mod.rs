//! A real proxy between callers and a service, with a shipped configuration that calls a sidecar,
//! and the scenes that every proxy must pass.

mod backend;
mod caller;

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_core::names::Name;
use plimsoll_core::rollout::{Cohort, Percent};
use plimsoll_testing::process::{Process, free_addresses, until, until_true};
use plimsoll_testing::turns::turn;
use serde_json::Value;
use tempfile::TempDir;

use super::{Fleet, tool};
use crate::operators::kill::kill;

pub(super) use backend::Backend;
pub(super) use caller::{Answer, Caller, Counts, Fields, Load, Rates, exchange, share};

/// Bucket of the shipped configurations.
pub(super) const BUCKET: &str = "checkout";
/// Limit of the scenes and load on it, in requests/s.
const LIMIT: u32 = 30;
pub(super) const OFFERED: u32 = 120;
/// Number of answers behind a statement about a state.
const SAMPLE: usize = 200;
/// Name of the sidecar, which decides on the keys of its canary.
const NAME: &str = "edge-1";
const CANARY_PERCENT: f64 = 50.0;

/// Time that the proxy waits for an answer of the sidecar.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Timeout of the shipped file; afterwards a request passes undecided.
    Shipped,
    /// Longer than a busy machine takes, for tests that need a decision on every request.
    Long,
}

impl Patience {
    /// Returns the shipped text or the longer one.
    pub(super) const fn in_place_of(
        self,
        shipped: &'static str,
        long: &'static str,
    ) -> &'static str {
        match self {
            Self::Shipped => shipped,
            Self::Long => long,
        }
    }
}

/// A sidecar, a service, and a directory for the files of the proxy between them.
pub(super) struct Setting {
    pub(super) fleet: Fleet,
    pub(super) backend: Backend,
    pub(super) directory: TempDir,
    /// Address for the proxy.
    pub(super) address: SocketAddr,
    /// Address where the proxy answers itself if the sidecar is down.
    pub(super) spare: SocketAddr,
}

impl Setting {
    pub(super) fn start(policy: &str) -> Self {
        Self::with_rules(policy, None)
    }

    pub(super) fn with_rules(policy: &str, rules: Option<&str>) -> Self {
        let [inside, outside] = tenants();
        let tenants = format!(
            "tenants: {{ default: {{ weight: 1.0 }}, {inside}: {{ weight: 1.0 }}, {outside}: {{ weight: 1.0 }} }}\n"
        );
        let fleet = Fleet::start(policy, &tenants, rules, &["--name", NAME]);
        let [address, spare] = free_addresses();
        Self {
            fleet,
            backend: Backend::start(),
            directory: tempfile::tempdir().unwrap(),
            address,
            spare,
        }
    }

    pub(super) fn sidecar(&self) -> SocketAddr {
        self.fleet.sidecar.address("http")
    }

    /// Writes a file for the proxy, and returns its path.
    pub(super) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Checks the configuration by the proxy's own command, starts the proxy, and waits until it
    /// listens.
    pub(super) fn run(&self, mut check: Command, command: Command) -> Process {
        let checked = check.output().unwrap();
        let output = [checked.stdout, checked.stderr].concat();
        assert!(
            checked.status.success(),
            "{check:?}: {}",
            String::from_utf8_lossy(&output)
        );
        let proxy = Process::spawn_command(command);
        until("the proxy to listen", || {
            TcpStream::connect(self.address).ok()
        });
        proxy
    }
}

/// A policy of the bucket without gates and guardrails.
pub(super) fn policy(limit: u32, mode: &str) -> String {
    format!(
        "buckets:\n  {BUCKET}: {{ limit: {limit}, mode: {mode} }}\n\
         rollout: {{ require_gates: false, canary_percent: {CANARY_PERCENT} }}\nguardrails: off\n"
    )
}

/// Returns a tenant inside and one outside the sidecar's canary.
fn tenants() -> [String; 2] {
    let cohort = Cohort {
        percent: Percent::new(CANARY_PERCENT).unwrap(),
        salt: Cohort::salt_of(BUCKET),
    };
    let sidecar = Name::new(NAME).unwrap();
    [true, false].map(|inside| {
        let mut names = (0..).map(|number| format!("tenant-{number}"));
        names
            .find(|tenant| cohort.contains_key(&sidecar, tenant) == inside)
            .unwrap()
    })
}

/// Number of requests of [`passes_requests_intact`].
const REQUESTS: u32 = 12;

/// Asserts that requests of all kinds reach the service unchanged, except for the fields of the
/// sidecar.
fn passes_requests_intact(setting: &Setting) {
    let caller = Caller::new(setting.address);
    let spoofed: Fields<'_> = &[
        ("x-plimsoll-bucket", "spoofed-bucket"),
        ("x-plimsoll-tenant", "spoofed-tenant"),
        ("x-plimsoll-cost", "7"),
        ("x-plimsoll-shadow", "spoofed"),
        ("x-tenant", "acme"),
        ("authorization", "Basic dTpw"),
    ];
    let answer = caller.send("POST", "/orders/7?full=1", spoofed, "a body");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(
        answer.body.starts_with("POST /orders/7?full=1\n") && answer.body.ends_with("\na body"),
        "{answer:?}"
    );
    assert!(answer.body.contains("\nx-tenant: acme\n"), "{answer:?}");
    assert!(
        answer.body.contains("\nauthorization: Basic dTpw\n"),
        "{answer:?}"
    );
    assert!(
        !answer.body.contains("x-plimsoll-"),
        "no field of the sidecar is the caller's: {answer:?}"
    );

    let answer = caller.send("PUT", "/upload", &[], &"x".repeat(300_000));
    assert!(
        answer.status == 200 && answer.body.ends_with(&"x".repeat(300_000)),
        "{}",
        answer.status
    );
    let answer = caller.get("/large", &[("cookie", &"c".repeat(6_000))]);
    assert!(
        answer.status == 200 && answer.body.contains(&"c".repeat(6_000)),
        "{answer:?}"
    );
    let answer = caller.send("HEAD", "/head", &[], "");
    assert_eq!((answer.status, &*answer.body), (200, ""), "{answer:?}");
    for status in [403, 429, 500, 502, 503] {
        let answer = caller.get(&format!("/status/{status}"), &[]);
        assert_eq!(
            answer.status, status,
            "the service's own status: {answer:?}"
        );
        assert!(
            answer.body.starts_with("GET /status/"),
            "the service's own body: {answer:?}"
        );
    }

    let host = setting.address;
    let mut stream = TcpStream::connect(host).unwrap();
    let head = format!(
        "POST /slow HTTP/1.1\r\nhost: {host}\r\nexpect: 100-continue\r\ncontent-length: 6\r\n\r\n"
    );
    // Caddy passes on the service's, with a field of its own, or answers itself.
    let interim = exchange(&mut stream, head.as_bytes(), "\r\n\r\n");
    assert!(
        interim.starts_with("HTTP/1.1 100 Continue\r\n"),
        "{interim}"
    );
    exchange(&mut stream, b"a body", "\na body");
    let mut stream = TcpStream::connect(host).unwrap();
    let chunked = format!(
        "POST /chunked HTTP/1.1\r\nhost: {host}\r\ntransfer-encoding: chunked\r\n\r\n6\r\na body\r\n0\r\n\r\n"
    );
    exchange(&mut stream, chunked.as_bytes(), "\na body");
    let mut stream = TcpStream::connect(host).unwrap();
    let upgrade = format!(
        "GET /socket HTTP/1.1\r\nhost: {host}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    let switched = exchange(&mut stream, upgrade.as_bytes(), "\r\n\r\n");
    assert!(switched.starts_with("HTTP/1.1 101 "), "{switched}");
    exchange(&mut stream, b"ping", "ping");

    // Each counts once: callers choose neither the bucket nor the cost.
    let decisions = || setting.fleet.sidecar_metric("plimsoll_decisions_total", "");
    until_true("the decisions", || decisions() >= f64::from(REQUESTS));
    assert_eq!(decisions(), f64::from(REQUESTS), "decisions of requests");
}

/// Sends heads that the sidecar would reject, more of each than the failures that make a proxy stop
/// calling it. The sidecar decides about each request that the proxy forwards.
/// `forwards_control_bytes`: the proxy does not refuse them.
fn no_head_passes_undecided(setting: &Setting, forwards_control_bytes: bool) {
    const TIMES: u32 = 25;
    let decisions = || setting.fleet.sidecar_metric("plimsoll_decisions_total", "");
    let until_decided = |before: f64, requests: u32| {
        let expected = before + f64::from(requests);
        until_true("the decisions", || decisions() >= expected);
        assert_eq!(decisions(), expected, "decisions of {requests} requests");
    };
    let host = setting.address;
    let is_served = |path: &str, fields: &str| {
        let mut stream = TcpStream::connect(host).unwrap();
        let head = format!("GET /{path} HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n");
        exchange(&mut stream, head.as_bytes(), "\r\n\r\n").starts_with("HTTP/1.1 200 ")
    };

    // The service refuses these itself.
    let before = decisions();
    let names = [
        "traceparent",
        "origin",
        "access-control-request-method",
        "x-tenant",
    ];
    for name in names.into_iter().cycle().take(names.len() * TIMES as usize) {
        is_served("", &format!("{name}: a\u{1}b\r\n"));
    }
    until_decided(
        before,
        if forwards_control_bytes {
            names.len() as u32 * TIMES
        } else {
            0
        },
    );

    let before = decisions();
    let trace = format!("traceparent: {}\r\n", "a".repeat(15_000));
    let [path, long_path] = [7_000, 15_000].map(|length| "a".repeat(length));
    let mut served = 0;
    for _ in 0..TIMES {
        for (path, fields) in [("", &*trace), (&path, ""), (&long_path, ""), ("", "")] {
            served += u32::from(is_served(path, fields));
        }
    }
    assert!(served >= TIMES, "{served}");
    until_decided(before, served);
}

/// Starts a proxy with more changes of its file. It asks the sidecar at this address.
type Start = fn(&Setting, &Path, &str, Patience, &[(&str, &str)]) -> Process;

/// Sends requests through a proxy that asks by the Unix socket, while nothing is limited, then under a
/// limit, and returns a refusal. `scheme` is what the proxy writes before the path of a socket.
pub(super) fn passes_requests_and_refusals(
    proxy: &str,
    start: Start,
    scheme: &str,
    forwards_control_bytes: bool,
) -> Option<Answer> {
    let program = tool(proxy, proxy)?;
    let _turn = turn(OFFERED);
    let setting = Setting::start("buckets: {}\n");
    let socket = format!("{scheme}{}", setting.fleet.path("http.sock").display());
    let _proxy = start(&setting, &program, &socket, Patience::Long, &[]);
    passes_requests_intact(&setting);
    no_head_passes_undecided(&setting, forwards_control_bytes);
    setting.fleet.save("policy.yaml", &policy(30, "enforce"));
    Some(refusal(&setting))
}

/// Checks that the body of a refusal is the sidecar's.
pub(super) fn assert_body_of_sidecar(answer: &Answer) {
    assert!(
        answer.body.contains("\"violated-policies\":[\"checkout\"]"),
        "{answer:?}"
    );
}

/// Waits for a refusal under load, checks the common answer of all proxies, and returns it. The
/// caller's own fields of the sidecar name an unlimited bucket, which must not help it.
pub(super) fn refusal(setting: &Setting) -> Answer {
    let [tenant, _] = tenants();
    let fields: Fields<'_> = &[
        ("x-tenant", &tenant),
        ("x-plimsoll-bucket", "free"),
        ("x-plimsoll-tenant", "spoofed-tenant"),
    ];
    let _load = Load::start(setting.address, "/orders", &[fields], OFFERED);
    let caller = Caller::new(setting.address);
    let answer = until("a refusal", || {
        let answer = caller.send("POST", "/orders", fields, "a body");
        (answer.status == 429).then_some(answer)
    });
    let limit = LIMIT.to_string();
    assert_eq!(
        answer.field("content-type"),
        "application/problem+json",
        "{answer:?}"
    );
    assert_eq!(
        answer.field("ratelimit-policy"),
        format!("\"{BUCKET}\";q={limit};w=1"),
        "{answer:?}"
    );
    assert_eq!(answer.field("x-ratelimit-limit"), limit, "{answer:?}");
    assert_eq!(answer.field("x-ratelimit-remaining"), "0", "{answer:?}");
    let retry_after: u32 = answer.field("retry-after").parse().unwrap();
    assert!(retry_after >= 1, "{answer:?}");
    assert_eq!(
        answer.field("ratelimit"),
        format!("\"{BUCKET}\";r=0;t={retry_after}"),
        "{answer:?}"
    );
    assert!(
        answer.field("x-ratelimit-reset").parse::<u64>().unwrap() > 1_700_000_000,
        "{answer:?}"
    );
    let problem: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(problem["status"], 429, "{answer:?}");
    assert_eq!(
        problem["reason"],
        answer.field("x-ratelimit-reason"),
        "{answer:?}"
    );

    let head = until("a refusal of HEAD", || {
        let answer = caller.send("HEAD", "/orders", fields, "");
        (answer.status == 429).then_some(answer)
    });
    assert_eq!(head.body, "", "{head:?}");
    assert_eq!(
        head.field("ratelimit-policy"),
        answer.field("ratelimit-policy"),
        "{head:?}"
    );
    let decisions = |bucket| {
        setting
            .fleet
            .sidecar_metric("plimsoll_decisions_total", bucket)
    };
    assert!(decisions("bucket=\"checkout\"") > 0.0);
    assert_eq!(
        decisions("bucket=\"free\""),
        0.0,
        "no request counts for the bucket that callers name"
    );
    answer
}

/// Moves the bucket, which is in shadow, through canary, enforcement, a dying sidecar, a hanging
/// sidecar, and a kill.
pub(super) fn goes_through_all_stages(setting: &mut Setting) {
    let [inside, outside] = tenants();
    let callers: [Fields<'_>; 2] = [&[("x-tenant", &inside)], &[("x-tenant", &outside)]];
    let load = Load::start(setting.address, "/orders", &callers, OFFERED);
    let refused = |counts: &Counts, caller| share(counts, Some(caller), 429);

    until_withheld(&setting.backend, 20);
    let counts = load.all();
    assert_eq!(
        share(&counts, None, 200),
        1.0,
        "shadow refuses nothing: {counts:?}"
    );

    setting.fleet.promote(BUCKET, "canary");
    until_true("refusals in the canary", || {
        refused(&load.next(20), 0) > 0.0
    });
    let counts = load.all();
    assert_eq!(
        refused(&counts, 1),
        0.0,
        "the canary refuses for its keys alone: {counts:?}"
    );

    setting.fleet.promote(BUCKET, "enforce");
    let due = 1.0 - f64::from(LIMIT) / f64::from(OFFERED);
    until_true("the limit to hold", || {
        let counts = load.next(SAMPLE);
        [0, 1]
            .iter()
            .all(|caller| (refused(&counts, *caller) - due).abs() < 0.12)
    });

    setting.fleet.kill_sidecar();
    load.next(20);
    let counts = load.next(SAMPLE);
    assert_eq!(
        share(&counts, None, 200),
        1.0,
        "requests pass without the sidecar: {counts:?}"
    );
    setting.fleet.restart_sidecar();
    until_refusals(&load);

    setting.fleet.sidecar.signal("STOP");
    load.next(20);
    let counts = load.next(SAMPLE);
    assert_eq!(
        share(&counts, None, 200),
        1.0,
        "requests pass while the sidecar hangs: {counts:?}"
    );
    setting.fleet.sidecar.signal("CONT");
    until_refusals(&load);

    let controller = setting.fleet.controller.url("admin");
    kill(&["on", "--reason", "a test", "--controller", &controller]);
    until("the end of refusals", || {
        (share(&load.next(20), None, 200) == 1.0).then_some(())
    });
    until_withheld(&setting.backend, 20);
    let counts = load.next(SAMPLE);
    assert_eq!(
        share(&counts, None, 200),
        1.0,
        "a kill refuses nothing: {counts:?}"
    );

    let counts = load.all();
    let expected = share(&counts, None, 200) + share(&counts, None, 429);
    assert!(
        (expected - 1.0).abs() < 1e-9,
        "no other status and no lost request: {counts:?}"
    );
}

/// Sends requests to a proxy with a dead sidecar and these bounds until the proxy itself refuses one.
pub(super) fn refuses_without_sidecar(proxy: &str, start: Start, bounds: &[(&str, &str)]) {
    let Some(program) = tool(proxy, proxy) else {
        return;
    };
    let _turn = turn(OFFERED);
    let mut setting = Setting::start("buckets: {}\n");
    let sidecar = setting.sidecar().to_string();
    let _proxy = start(&setting, &program, &sidecar, Patience::Shipped, bounds);
    setting.fleet.kill_sidecar();
    let caller = Caller::new(setting.address);
    let mut served = 0;
    until_true("a refusal by the proxy itself", || {
        let answer = caller.get("/orders", &[]);
        served += u32::from(answer.status == 200);
        answer.status == 429
    });
    assert!(served > 0);
}

fn until_refusals(load: &Load) {
    until("refusals to come back", || {
        (share(&load.next(20), None, 429) > 0.3).then_some(())
    });
}

/// Waits until the service has seen more requests with a withheld refusal.
fn until_withheld(backend: &Backend, more: u64) {
    let before = backend.withheld();
    until_true("withheld refusals", || backend.withheld() >= before + more);
}
