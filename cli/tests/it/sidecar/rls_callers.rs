//! The shipped callers of the rate limit service, in other languages, against a real sidecar.

use std::path::PathBuf;
use std::process::Command;

use plimsoll_testing::fleet::TENANTS;
use plimsoll_testing::process::until;
use plimsoll_testing::turns::{IDLE, turn};

use super::{Fleet, integration};
use plimsoll_testing::skipped;

const POLICY: &str = "\
rollout: { require_gates: false }
guardrails: off
buckets:
  open: { limit: 1000000, mode: enforce }
  full: { limit: 0, mode: enforce }
";

/// Folder of packages that `./test` installs.
fn packages() -> PathBuf {
    let running = std::env::current_exe().unwrap();
    let mut all = running
        .ancestors()
        .map(|folder| folder.join("tools/python"));
    all.find(|path| path.is_dir()).unwrap_or_default()
}

fn python() -> Command {
    let mut command = Command::new("python3");
    command
        .env("PYTHONPATH", packages())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

#[test]
fn python_caller_needs_no_sidecar() {
    let imports = ["-c", "import grpc, envoy.service.ratelimit.v3.rls_pb2_grpc"];
    if !python()
        .args(imports)
        .output()
        .is_ok_and(|ended| ended.status.success())
    {
        skipped(
            "sidecar::python_caller_needs_no_sidecar: python3 with grpcio and xds-protos is not installed",
        );
        return;
    }
    let _turn = turn(IDLE);
    let mut fleet = Fleet::start(POLICY, TENANTS, None, &[]);
    let address = fleet.sidecar.address("listen").to_string();
    let ask = |bucket: &str| {
        let script = integration("callers/rls.py");
        let ended = python()
            .arg(script)
            .args([&address, bucket, "acme"])
            .output()
            .unwrap();
        assert!(
            ended.status.success(),
            "{}",
            String::from_utf8_lossy(&ended.stderr)
        );
        (
            String::from_utf8(ended.stdout).unwrap().trim().to_owned(),
            String::from_utf8(ended.stderr).unwrap(),
        )
    };
    until("the limit to reach the sidecar", || {
        (ask("full").0 == "refused").then_some(())
    });
    assert_eq!(ask("open").0, "allowed");
    fleet.kill_sidecar();
    let (answer, error) = ask("full");
    assert_eq!(answer, "allowed");
    assert!(!error.is_empty(), "the caller says why");
}
