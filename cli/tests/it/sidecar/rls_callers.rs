//! The shipped callers of the rate limit service, in other languages, against a real sidecar.

use plimsoll_testing::fleet::TENANTS;
use plimsoll_testing::process::{has_python_package, python_command, until_true};
use plimsoll_testing::turns::{IDLE, turn};

use super::{Fleet, integration};

const POLICY: &str = "\
rollout: { require_gates: false }
guardrails: off
buckets:
  open: { limit: 1000000, mode: enforce }
  full: { limit: 0, mode: enforce }
";

#[test]
fn python_caller_needs_no_sidecar() {
    let test = "sidecar::python_caller_needs_no_sidecar";
    if !has_python_package(test, "grpc, envoy.service.ratelimit.v3.rls_pb2_grpc") {
        return;
    }
    let _turn = turn(IDLE);
    let mut fleet = Fleet::start(POLICY, TENANTS, None, &[]);
    let address = fleet.sidecar.address("listen").to_string();
    let ask = |bucket: &str| {
        let mut asking = python_command();
        asking.arg(integration("callers/rls.py"));
        let ended = asking.args([&address, bucket, "acme"]).output().unwrap();
        let [answer, error] = [ended.stdout, ended.stderr]
            .map(|text| String::from_utf8(text).unwrap().trim().to_owned());
        assert!(ended.status.success(), "{error}");
        (answer, error)
    };
    until_true("the limit to reach the sidecar", || {
        ask("full").0 == "refused"
    });
    assert_eq!(ask("open").0, "allowed");
    fleet.kill_sidecar();
    let (answer, error) = ask("full");
    assert_eq!(answer, "allowed");
    assert!(!error.is_empty(), "the caller says why");
}
