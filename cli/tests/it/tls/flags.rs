//! The flags of trust at the real binary: faults that prevent the start of a tier, its warnings,
//! and the names of operators in orders.

use std::fs;
use std::path::Path;

use plimsoll_core::exchange::PeerRole;
use plimsoll_core::names::Zone;
use plimsoll_testing::process::{Process, message, run};
use plimsoll_tls::testing::{Authority, Validity};
use serde_json::Value;
use tempfile::TempDir;

/// Makes a directory with a policy, and with certificates of a controller and of an aggregator of
/// zone `a`.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("policy.yaml"),
        "buckets: { b: { limit: 100 } }",
    )
    .unwrap();
    let authority = Authority::new("test.example");
    let aggregator = PeerRole::Aggregator {
        zone: Zone::new("a").unwrap(),
    };
    for (name, role) in [
        ("controller", PeerRole::Controller),
        ("aggregator", aggregator),
    ] {
        let directory = folder.path().join(name);
        fs::create_dir(&directory).unwrap();
        authority.write(&directory, role, Validity::default());
    }
    folder
}

fn controller(folder: &Path) -> Vec<String> {
    let path = |name: &str| folder.join(name).display().to_string();
    [
        "controller",
        "--policy",
        &path("policy.yaml"),
        "--state-dir",
        &path("state"),
    ]
    .map(str::to_owned)
    .into()
}

/// Free ports on loopback.
#[test]
fn unusable_trust_flags_exit_with_two() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (of_controller, of_aggregator) = (path("controller"), path("aggregator"));
    fs::write(path("tokens"), "ann admin sha256:12\n").unwrap();
    let controller = controller(folder.path());
    let aggregator: Vec<String> = ["aggregator", "--zone", "a"].map(str::to_owned).into();
    for (tier, flags, parts) in [
        (
            &controller,
            vec!["--listen", "0.0.0.0:0"],
            vec!["--listen 0.0.0.0:0", "--certs", "--insecure"],
        ),
        (
            &controller,
            vec!["--admin", "[::]:0"],
            vec!["--admin [::]:0", "plimsoll certs", "--insecure"],
        ),
        (
            &aggregator,
            vec!["--listen", "0.0.0.0:0"],
            vec!["--listen 0.0.0.0:0", "--certs", "--insecure"],
        ),
        (
            &aggregator,
            vec!["--controller", "https://a:1"],
            vec!["--controller", "https://a:1", "--certs DIR"],
        ),
        (
            &aggregator,
            vec!["--controller", "http://a:1"],
            vec!["--controller", "--certs DIR", "--insecure"],
        ),
        (
            &controller,
            vec!["--certs", &of_aggregator],
            vec![
                "zone/a/aggregator",
                "plimsoll certs issue controller --ca",
                &of_aggregator,
            ],
        ),
        (
            &aggregator,
            vec!["--certs", &of_controller],
            vec![
                "plimsoll/controller",
                "plimsoll certs issue aggregator --zone a",
                &of_controller,
            ],
        ),
        (
            &aggregator,
            vec!["--zone", "b", "--certs", &of_aggregator],
            vec![
                "zone/a/aggregator",
                "plimsoll certs issue aggregator --zone b",
            ],
        ),
        (
            &controller,
            vec!["--certs", "/nowhere"],
            vec!["--certs", "/nowhere", "tls.crt, tls.key and ca.crt"],
        ),
        (
            &controller,
            vec!["--tokens", &path("tokens")],
            vec!["--tokens", "line 1", "64 hex digits"],
        ),
    ] {
        let tier = tier
            .iter()
            .map(String::as_str)
            .filter(|arg| !flags.contains(arg));
        // A zone in the flags replaces the tier's.
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
fn plaintext_beyond_loopback_gives_one_warning() {
    let folder = folder();
    let mut args = controller(folder.path());
    args.extend(
        [
            "--listen",
            "0.0.0.0:0",
            "--admin",
            "0.0.0.0:0",
            "--insecure",
        ]
        .map(str::to_owned),
    );
    let process = Process::start(&args);
    let lines: Vec<Value> = process
        .log()
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let warnings: Vec<&Value> = lines
        .iter()
        .filter(|line| message(line).is_some_and(|text| text.contains("--insecure")))
        .collect();
    assert_eq!(warnings.len(), 1, "{lines:?}");
    assert_eq!(warnings[0]["level"], "WARN");
    assert_eq!(
        warnings[0]["fields"]["plaintext"],
        "--listen 0.0.0.0:0, --admin 0.0.0.0:0"
    );
}
