//! Stores over TLS with a token or a password: services reach them, and a service without its store
//! names the cause.

use std::cell::RefCell;
use std::fs;
use std::net::SocketAddr;

use plimsoll_testing::fleet::{Fleet, metric};
use plimsoll_testing::process::{Process, add_token, http, message, succeed, until_true};
use plimsoll_testing::turns::{IDLE, turn};
use tempfile::TempDir;

use super::super::server::Server;
use super::{Redis, TENANT, fleet};
use crate::operators::kill::own_address;

const QUOTAS: [(&str, &str); 1] = [(
    "api",
    "max: 1000, every: 1h, lease: 1, on_store_error: deny",
)];

/// An authority with certificates of a quota server for one host name, another authority, and a
/// right and a wrong secret.
struct Scene {
    place: TempDir,
}

impl Scene {
    fn new(host: &str) -> Self {
        let scene = Self {
            place: tempfile::tempdir().unwrap(),
        };
        let (ca, certs) = (scene.path("ca"), scene.path("certs"));
        succeed(&["certs", "init", "--dir", &ca]);
        succeed(&["certs", "init", "--dir", &scene.path("other")]);
        let issue = ["certs", "issue", "quota", "--ca", &ca];
        succeed(&[&issue[..], &["--out", &certs, "--host", host]].concat());
        add_token(scene.place.path(), "right", "viewer");
        fs::write(scene.path("wrong"), "wrong-secret\n").unwrap();
        scene
    }

    fn path(&self, name: &str) -> String {
        self.place.path().join(name).display().to_string()
    }

    fn service(&self, fleet: &Fleet, store: &str, ca: &str, secret: &str) -> Process {
        let (ca, secret) = (self.path(ca), self.path(secret));
        let store = ["--quota-store", store, "--quota-timeout", "2s"];
        let trust = ["--quota-ca", &ca, "--quota-password-file", &secret];
        super::service(fleet, &[&store[..], &trust].concat())
    }
}

fn request(service: &Process) -> u16 {
    http(
        service.address("listen"),
        "GET",
        "/api",
        &[("x-tenant", TENANT)],
    )
    .unwrap()
    .0
}

fn decisions(service: &Process, result: &str) -> f64 {
    let label = format!("result=\"{result}\"");
    service.metric("listen", "plimsoll_decisions_total", &label)
}

/// Checks that a service without its store applies the policy and names the cause, once; `tries`
/// returns the number of connections that the store has seen.
fn assert_refused_for(service: &Process, cause: &str, tries: impl Fn() -> f64) {
    let is_logged = |line: &serde_json::Value| {
        message(line).is_some_and(|text| text.starts_with("quota store does not answer"))
    };
    let warnings = || {
        let lines = service.log();
        let lines = lines
            .iter()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        lines
            .filter(|line| line["level"] == "WARN" && line.to_string().contains("quota store"))
            .collect::<Vec<_>>()
    };
    until_true("the store to be given up", || {
        assert_ne!(request(service), 200);
        warnings().iter().any(is_logged)
    });
    let before = tries();
    until_true("more attempts", || tries() >= before + 3.0);
    let warnings = warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let text = warnings[0]["fields"]["cause"]
        .as_str()
        .unwrap_or_else(|| panic!("{warnings:?}"));
    assert!(text.to_lowercase().contains(cause), "{text}");
    assert_ne!(request(service), 200);
    assert!(decisions(service, "quota_degraded") >= 2.0);
    let page = service.metrics("listen");
    let denied = metric(&page, "plimsoll_quota_degraded_total", "policy=\"deny\"");
    assert!(denied >= 2.0, "{page}");
    assert_eq!(decisions(service, "admit"), 0.0);
    let log = service.log().join("\n");
    assert!(!log.contains("wrong-secret"), "no secret is logged: {log}");
}

#[test]
fn quota_server_requires_trust_and_a_token() {
    let _turn = turn(IDLE);
    let Some(own) = own_address("quota::remote::trust") else {
        return;
    };
    let (scene, fleet) = (Scene::new(&own.to_string()), fleet(&QUOTAS));
    let (certs, tokens) = (scene.path("certs"), scene.path("tokens"));
    let trust = ["--certs", &certs, "--tokens", &tokens];
    let server = Server::start_with(&[&["--listen", "0.0.0.0:0"], &trust[..]].concat());
    let port = server.address().port();
    let url = format!("plimsolls://{}", SocketAddr::new(own, port));
    let tries = || {
        let page = server.process.metrics("admin");
        let handshakes = metric(&page, "plimsoll_handshakes_failed_total", "");
        handshakes + metric(&page, "plimsoll_quota_connections_total", "")
    };

    let service = scene.service(&fleet, &url, "certs/ca.crt", "right");
    until_true("the store to decide", || request(&service) == 200);
    assert!(super::operations(&server.process, "take") >= 1.0);

    let stranger = scene.service(&fleet, &url, "other/ca.crt", "right");
    assert_refused_for(&stranger, "not signed by", tries);
    let elsewhere = format!("plimsolls://127.0.0.2:{port}");
    let misnamed = scene.service(&fleet, &elsewhere, "certs/ca.crt", "right");
    assert_refused_for(&misnamed, "not valid for name", tries);
    let guesser = scene.service(&fleet, &url, "certs/ca.crt", "wrong");
    assert_refused_for(&guesser, "authentication failed", tries);
    // The connection of the first is not affected.
    assert_eq!(request(&service), 200);
}

#[test]
fn redis_requires_trust_and_a_password() {
    let _turn = turn(IDLE);
    let scene = Scene::new("127.0.0.1");
    let [cert, key, ca] =
        ["certs/tls.crt", "certs/tls.key", "certs/ca.crt"].map(|name| scene.path(name));
    let password = fs::read_to_string(scene.path("right")).unwrap();
    let arguments = [
        ["--tls-cert-file", &cert],
        ["--tls-key-file", &key],
        ["--tls-ca-cert-file", &ca],
        ["--tls-auth-clients", "no"],
        ["--requirepass", password.trim()],
    ];
    let test = "redis_requires_trust_and_a_password";
    let Some(redis) = Redis::start(test, arguments.as_flattened()) else {
        return;
    };
    let (fleet, url) = (fleet(&QUOTAS), format!("rediss://{}", redis.tls));
    let connection = RefCell::new(redis.connect(password.trim()));
    let tries = || {
        let info: redis::InfoDict = redis::cmd("INFO")
            .arg("stats")
            .query(&mut *connection.borrow_mut())
            .unwrap();
        let handshakes = redis
            .process
            .output()
            .matches("Error accepting a client connection")
            .count();
        info.get::<f64>("total_connections_received").unwrap() + handshakes as f64
    };
    let service = scene.service(&fleet, &url, "certs/ca.crt", "right");
    until_true("the store to decide", || request(&service) == 200);
    let stranger = scene.service(&fleet, &url, "other/ca.crt", "right");
    assert_refused_for(&stranger, "not signed by", tries);
    let guesser = scene.service(&fleet, &url, "certs/ca.crt", "wrong");
    assert_refused_for(&guesser, "authentication failed", tries);
    assert_eq!(request(&service), 200);
}
