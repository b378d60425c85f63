//! The flags of trust at the real binary: what a tier refuses to start with, what it warns of, and the names of
//! operators in orders.

use std::fs;
use std::path::Path;

use plimsoll_admin::access::TokenHash;
use plimsoll_core::exchange::PeerRole;
use plimsoll_core::names::Zone;
use plimsoll_tls::testing::{Authority, Validity};
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Process, http, message, run};

/// A directory with a policy, and with certificates of a controller and of an aggregator of zone `a`.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("policy.yaml"), "buckets: { b: { limit: 100 } }").unwrap();
    let authority = Authority::new("test.example");
    let aggregator = PeerRole::Aggregator { zone: Zone::new("a").unwrap() };
    for (name, role) in [("controller", PeerRole::Controller), ("aggregator", aggregator)] {
        let directory = folder.path().join(name);
        fs::create_dir(&directory).unwrap();
        authority.write(&directory, role, Validity::default());
    }
    folder
}

fn controller(folder: &Path) -> Vec<String> {
    let path = |name: &str| folder.join(name).display().to_string();
    ["controller", "--policy", &path("policy.yaml"), "--state-dir", &path("state")].map(str::to_owned).into()
}

/// Ports that are free, on loopback.
const FREE: [&str; 4] = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

#[test]
fn tier_with_unusable_flags_of_trust_ends_with_exit_code_2_and_the_remedy() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (of_controller, of_aggregator) = (path("controller"), path("aggregator"));
    fs::write(path("tokens"), "ann admin sha256:12\n").unwrap();
    let controller = controller(folder.path());
    let aggregator: Vec<String> = ["aggregator", "--zone", "a"].map(str::to_owned).into();
    for (tier, flags, parts) in [
        (&controller, vec!["--listen", "0.0.0.0:0"], vec!["--listen 0.0.0.0:0", "--certs", "--insecure"]),
        (&controller, vec!["--admin", "[::]:0"], vec!["--admin [::]:0", "plimsoll certs", "--insecure"]),
        (&aggregator, vec!["--listen", "0.0.0.0:0"], vec!["--listen 0.0.0.0:0", "--certs", "--insecure"]),
        (
            &aggregator,
            vec!["--controller", "https://a:1"],
            vec!["--controller", "https://a:1", "--certs DIR"],
        ),
        (&aggregator, vec!["--controller", "http://a:1"], vec!["--controller", "--certs DIR", "--insecure"]),
        (
            &controller,
            vec!["--certs", &of_aggregator],
            vec!["zone/a/aggregator", "plimsoll certs issue controller --ca", &of_aggregator],
        ),
        (
            &aggregator,
            vec!["--certs", &of_controller],
            vec!["plimsoll/controller", "plimsoll certs issue aggregator --zone a", &of_controller],
        ),
        (
            &aggregator,
            vec!["--zone", "b", "--certs", &of_aggregator],
            vec!["zone/a/aggregator", "plimsoll certs issue aggregator --zone b"],
        ),
        (
            &controller,
            vec!["--certs", "/nowhere"],
            vec!["--certs", "/nowhere", "tls.crt, tls.key and ca.crt"],
        ),
        (&controller, vec!["--tokens", &path("tokens")], vec!["--tokens", "line 1", "64 hex digits"]),
    ] {
        let tier = tier.iter().map(String::as_str).filter(|arg| !flags.contains(arg));
        // A zone of the flags replaces that of the tier.
        let tier = tier.filter(|arg| !(flags.contains(&"--zone") && *arg == "a"));
        let args: Vec<&str> = tier.chain(flags.iter().copied()).collect();
        let ended = run(&args);
        let error = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{args:?}: {error}");
        for part in parts {
            assert!(error.contains(part), "{args:?}: {part} is missing: {error}");
        }
    }
}

#[test]
fn plaintext_beyond_loopback_is_named_in_one_warning() {
    let folder = folder();
    let mut args = controller(folder.path());
    args.extend(["--listen", "0.0.0.0:0", "--admin", "0.0.0.0:0", "--insecure"].map(str::to_owned));
    let process = Process::start(&args);
    let lines: Vec<Value> = process.log().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let warnings: Vec<&Value> =
        lines.iter().filter(|line| message(line).is_some_and(|text| text.contains("--insecure"))).collect();
    assert_eq!(warnings.len(), 1, "{lines:?}");
    assert_eq!(warnings[0]["level"], "WARN");
    assert_eq!(warnings[0]["fields"]["plaintext"], "--listen 0.0.0.0:0, --admin 0.0.0.0:0");
}

#[test]
fn order_has_the_name_of_its_token_and_no_token_is_logged() {
    let folder = folder();
    let token = |number: u32| format!("plimsoll_{number:043}");
    let tokens = folder.path().join("tokens");
    let line = |name: &str, role: &str, number| format!("{name} {role} {}\n", TokenHash::of(&token(number)));
    fs::write(&tokens, line("ann", "operator", 1) + &line("ben", "viewer", 2)).unwrap();
    let tokens = tokens.display().to_string();
    let upper = Process::start(
        &[
            controller(folder.path()),
            FREE.map(str::to_owned).into(),
            vec!["--tokens".to_owned(), tokens.clone()],
        ]
        .concat(),
    );
    let lower = Process::start(&[&["aggregator", "--tokens", &tokens][..], &FREE].concat());
    for tier in [&upper, &lower] {
        let ask = |method: &str, path: &str, number: Option<u32>, body: &str| {
            let (bearer, length) =
                (number.map(|number| format!("Bearer {}", token(number))), body.len().to_string());
            let mut headers = vec![("content-type", "application/json"), ("content-length", length.as_str())];
            headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
            // The body follows the empty line after the headers.
            let last = format!("close\r\n\r\n{body}");
            headers.push(("connection", &last));
            http(tier.address("admin"), method, path, &headers).unwrap()
        };
        let order = r#"{"reason":"test","by":"mallory"}"#;
        assert_eq!(ask("POST", "/kill/on", None, order).0, 401);
        assert_eq!(ask("POST", "/kill/on", Some(9), order).0, 401);
        assert_eq!(ask("POST", "/kill/on", Some(2), order).0, 403);
        assert_eq!(ask("POST", "/kill/on", Some(1), order).0, 200);
        let (status, body) = ask("GET", "/kill", Some(2), "");
        let killed: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &killed["fleet"]["killed"]), (200, &Value::Bool(true)), "{body}");
        let page = ask("GET", "/metrics", None, "").1;
        for row in ["unknown_token\"} 1", "no_token\"} 1", "role\"} 1"] {
            assert!(page.contains(&format!("plimsoll_admin_refused_total{{reason=\"{row}")), "{row}: {page}");
        }
        // The name of the order is in the log of both, and in the state of a controller.
        let log = tier.log().join("\n");
        assert!(log.contains("ann") && !log.contains("mallory"), "{log}");
        assert!(log.contains("ben") && log.contains("admin request refused"), "{log}");
        assert!((1..=9).all(|number| !log.contains(&token(number))), "{log}");
        let security: Value = serde_json::from_str(&ask("GET", "/status", Some(2), "").1).unwrap();
        assert_eq!(security["security"]["tokens"]["accepted"], 2);
    }
    assert_eq!(upper.address("listen").ip().to_string(), "127.0.0.1");
}

#[test]
fn ports_are_on_loopback_by_default() {
    for (tier, port, admin) in [("controller", 7400, 7401), ("aggregator", 7410, 7411)] {
        let help = String::from_utf8(run(&[tier, "--help"]).stdout).unwrap();
        for port in [port, admin] {
            assert!(help.contains(&format!("[default: 127.0.0.1:{port}]")), "{tier}: {help}");
        }
    }
}
