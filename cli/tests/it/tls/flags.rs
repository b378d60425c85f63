//! The flags of trust at the real binary: faults that prevent the start of a tier, its warnings,
//! and the names of operators in orders.

use std::fs;

use plimsoll_core::exchange::PeerRole;
use plimsoll_core::names::Zone;
use plimsoll_testing::fleet::controller_in;
use plimsoll_testing::process::{message, outcome};
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

#[test]
fn unusable_trust_flags_exit_with_two() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (of_controller, of_aggregator) = (path("controller"), path("aggregator"));
    fs::write(path("tokens"), "ann admin sha256:12\n").unwrap();
    let (policy, state) = (path("policy.yaml"), path("state"));
    let controller = ["controller", "--policy", &policy, "--state-dir", &state];
    let aggregator = ["aggregator", "--zone", "a"];
    let (top, zone) = (&controller[..], &aggregator[..]);
    let certs_of = |path: &str| format!("--certs {path}");
    for (tier, flags, parts) in [
        (
            top,
            "--listen 0.0.0.0:0",
            &["--listen 0.0.0.0:0", "--certs", "--insecure"][..],
        ),
        (
            top,
            "--admin [::]:0",
            &["--admin [::]:0", "plimsoll certs", "--insecure"],
        ),
        (
            zone,
            "--listen 0.0.0.0:0",
            &["--listen 0.0.0.0:0", "--certs", "--insecure"],
        ),
        (
            zone,
            "--controller https://a:1",
            &["--controller", "https://a:1", "--certs DIR"],
        ),
        (
            zone,
            "--controller http://a:1",
            &["--controller", "--certs DIR", "--insecure"],
        ),
        (
            top,
            &certs_of(&of_aggregator),
            &[
                "zone/a/aggregator",
                "plimsoll certs issue controller --ca",
                &of_aggregator,
            ],
        ),
        (
            zone,
            &certs_of(&of_controller),
            &[
                "plimsoll/controller",
                "plimsoll certs issue aggregator --zone a",
                &of_controller,
            ],
        ),
        (
            zone,
            &format!("--zone b {}", certs_of(&of_aggregator)),
            &[
                "zone/a/aggregator",
                "plimsoll certs issue aggregator --zone b",
            ],
        ),
        (
            top,
            "--certs /nowhere",
            &["--certs", "/nowhere", "tls.crt, tls.key and ca.crt"],
        ),
        (
            top,
            &format!("--tokens {}", path("tokens")),
            &["--tokens", "line 1", "64 hex digits"],
        ),
    ] {
        let flags: Vec<&str> = flags.split(' ').collect();
        // A zone in the flags replaces the tier's.
        let has_zone = flags.contains(&"--zone");
        let tier = if has_zone { &tier[..1] } else { tier };
        let args = [tier, &flags[..]].concat();
        let (code, error) = outcome(&args);
        assert_eq!(code, 2, "{args:?}: {error}");
        for part in parts {
            assert!(error.contains(part), "{args:?}: {part} is missing: {error}");
        }
    }
}

#[test]
fn plaintext_beyond_loopback_gives_one_warning() {
    let folder = folder();
    let open = "0.0.0.0:0";
    let process = controller_in(folder.path(), open, open, &["--insecure"]);
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
