//! The rate limit service over the wire: what each request is answered, and the error of each that cannot be.

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;

use super::Fleet;
use super::rls_caller::{Caller, codes, descriptor, field, request};
use crate::fleet::TENANTS;
use crate::process::until;
use crate::turns::{IDLE, turn};

/// Limits that leave nothing to chance: one admits all, one refuses all, one would.
const POLICY: &str = "\
rollout: { require_gates: false }
guardrails: off
buckets:
  open: { limit: 1000000, mode: enforce }
  full: { limit: 0, mode: enforce }
  watched: { limit: 0, mode: shadow }
";

const RULES: &str = "\
rls:
  domains:
    shop:
      descriptors:
        - { key: to, value: open, bucket: open }
        - { key: to, value: full, bucket: full, descriptors: [{ key: tenant, bucket: full, tenant: { entry: tenant } }] }
        - { key: to, value: watched, bucket: watched }
        - { key: to, value: dear, bucket: open, cost: 6000 }
        - { key: to, value: free, unlimited: true }
        - { key: call, bucket: full, refusal: grpc }
        - { key: quiet, bucket: full, refusal: bare }
";

const OPEN: [(&str, &str); 1] = [("to", "open")];
const FULL: [(&str, &str); 1] = [("to", "full")];
const WATCHED: [(&str, &str); 1] = [("to", "watched")];

/// A fleet whose limits have reached the sidecar.
fn fleet() -> (Fleet, Caller) {
    let fleet = Fleet::start(POLICY, TENANTS, Some(RULES), &[]);
    let mut caller = Caller::connect(fleet.sidecar.address("listen"));
    until("the limits to reach the sidecar", || {
        let refuses = caller.shop(vec![descriptor(&FULL)]).overall_code() == Code::OverLimit;
        let would =
            field(&caller.shop(vec![descriptor(&WATCHED)]).request_headers_to_add, "x-plimsoll-shadow")
                == Some("drop");
        (refuses && would).then_some(())
    });
    (fleet, caller)
}

#[test]
fn each_descriptor_has_its_status_and_a_request_is_refused_if_any_is() {
    let _turn = turn(IDLE);
    let (_fleet, mut caller) = fleet();
    let other = [("to", "nowhere")];
    let longer = [("to", "open"), ("and", "more")];
    let free = [("to", "free")];
    let (ok, over) = (Code::Ok, Code::OverLimit);
    for (descriptors, expected, overall) in [
        (vec![&OPEN[..]], vec![ok], ok),
        (vec![&FULL[..]], vec![over], over),
        (vec![&WATCHED[..]], vec![ok], ok),
        (vec![&free[..]], vec![ok], ok),
        // Rules match a descriptor only as a whole, and no rule means no limit.
        (vec![&other[..]], vec![ok], ok),
        (vec![&longer[..]], vec![ok], ok),
        (vec![&OPEN[..], &FULL[..], &other[..]], vec![ok, over, ok], over),
        (vec![&FULL[..], &FULL[..]], vec![over, over], over),
        (vec![&WATCHED[..], &OPEN[..]], vec![ok, ok], ok),
    ] {
        let response = caller.shop(descriptors.iter().map(|entries| descriptor(entries)).collect());
        assert_eq!((codes(&response), response.overall_code()), (expected, overall), "{descriptors:?}");
        assert_eq!(response.response_headers_to_add.is_empty(), overall == ok, "{descriptors:?}");
        assert_eq!(response.raw_body.is_empty(), overall == ok, "{descriptors:?}");
    }

    let response =
        caller.shop(vec![descriptor(&OPEN), descriptor(&FULL), descriptor(&other), descriptor(&free)]);
    let [open, full, other, free] = &response.statuses[..] else { panic!("{response:?}") };
    let limit = open.current_limit.as_ref().unwrap();
    assert_eq!(
        (limit.name.as_str(), limit.requests_per_unit, limit.unit()),
        ("open", 1_000_000, Unit::Second)
    );
    assert!(open.limit_remaining > 0 && open.duration_until_reset.is_none(), "{open:?}");
    let limit = full.current_limit.as_ref().unwrap();
    assert_eq!((limit.name.as_str(), limit.requests_per_unit), ("full", 0));
    assert_eq!(full.limit_remaining, 0);
    assert!(full.duration_until_reset.as_ref().unwrap().seconds > 0, "{full:?}");
    assert_eq!((&other.current_limit, &free.current_limit), (&None, &None));
    // In another domain no rule matches.
    let response = caller.ask(request("elsewhere", vec![descriptor(&FULL)])).unwrap();
    assert_eq!((codes(&response), response.overall_code()), (vec![ok], ok));
}
