//! Exact quotas behind descriptors: all or none are debited, and the refusal shows the quota.

use super::*;

const HOUR: Duration = Duration::from_secs(3_600);

#[test]
fn used_up_quota_is_the_current_limit() {
    let sidecar = Sidecar::new();
    sidecar.plane.quota("checkout", 2, HOUR).unwrap();
    let ask = |tenant| sidecar.ask_one(&[("account", tenant)]);
    for _ in 0..2 {
        assert_eq!(ask("acme").overall_code(), Code::Ok);
    }
    // The second refusal is from memory.
    for _ in 0..2 {
        let response = ask("acme");
        assert_eq!(response.overall_code(), Code::OverLimit);
        let [status] = response.statuses.as_slice() else {
            panic!("one status")
        };
        let limit = status.current_limit.clone().unwrap();
        assert_eq!(
            (limit.name.as_str(), limit.requests_per_unit, limit.unit()),
            ("checkout", 2, Unit::Hour)
        );
        assert_eq!(status.duration_until_reset.unwrap().seconds, 3_600);
        let fields = headers(&response);
        assert_eq!(fields["ratelimit-policy"], "\"checkout\";q=2;w=3600");
        assert_eq!(fields["ratelimit"], "\"checkout\";r=0;t=3600");
        assert_eq!(fields["x-ratelimit-reason"], "tenant_quota_exceeded");
        assert_eq!(metadata(&response)["reason"], "tenant_quota_exceeded");
    }
    assert_eq!(ask("globex").overall_code(), Code::Ok);
    sidecar.plane.advance(HOUR);
    assert_eq!(ask("acme").overall_code(), Code::Ok);
    let counts = sidecar.counts("checkout");
    assert_eq!(
        (counts.offered, counts.refused),
        (5, 1),
        "a refusal from memory is not offered"
    );
}

#[test]
fn kept_refusals_of_two_quotas_stay_distinct() {
    let sidecar = Sidecar::new();
    sidecar.plane.quota("search", 1, HOUR).unwrap();
    let policy = || {
        let response = sidecar.ask_one(&[("bare", "x")]);
        headers(&response)
            .get("ratelimit-policy")
            .map(|policy| (*policy).to_owned())
    };
    policy();
    assert_eq!(policy().unwrap(), "\"search\";q=1;w=3600");
    sidecar.plane.quota("search", 1, HOUR * 24).unwrap();
    assert_eq!(policy().unwrap(), "\"search\";q=1;w=86400");
}

#[test]
fn descriptors_are_debited_all_or_none() {
    let sidecar = Sidecar::new();
    sidecar.plane.quota("checkout", 3, HOUR).unwrap();
    // Each request costs 5.
    sidecar.plane.quota("search", 5, HOUR).unwrap();
    let both = || {
        request(vec![
            descriptor(&[("account", "acme")]),
            descriptor(&[("path", "/x")]),
        ])
    };
    assert_eq!(sidecar.ask(&both()).unwrap().overall_code(), Code::Ok);
    let refused = sidecar.ask(&both()).unwrap();
    assert_eq!(codes(&refused), [Code::Ok, Code::OverLimit]);
    // Two of three tokens are left.
    let alone = || sidecar.ask_one(&[("account", "acme")]).overall_code();
    assert_eq!(
        [alone(), alone(), alone()],
        [Code::Ok, Code::Ok, Code::OverLimit]
    );
}

#[test]
fn admitted_request_shows_what_is_left() {
    let sidecar = Sidecar::new();
    sidecar.plane.limit("checkout", 100.0).unwrap();
    sidecar.plane.quota("checkout", 3, HOUR).unwrap();
    let ask = || {
        sidecar.ask(&request(vec![
            descriptor(&[("account", "acme")]),
            descriptor(&[("path", "/")]),
        ]))
    };
    for remaining in [2, 1, 0] {
        let response = ask().unwrap();
        assert_eq!(response.overall_code(), Code::Ok);
        let [status, other] = response.statuses.as_slice() else {
            panic!("two statuses")
        };
        let limit = status.current_limit.clone().unwrap();
        assert_eq!(
            (
                limit.requests_per_unit,
                limit.unit(),
                status.limit_remaining
            ),
            (3, Unit::Hour, remaining)
        );
        assert_eq!(status.duration_until_reset.unwrap().seconds, 3_600);
        assert_eq!(other.duration_until_reset, None, "no quota");
        let state = format!("\"checkout\";r={remaining};t=3600");
        let fields = [
            ("ratelimit-policy", "\"checkout\";q=3;w=3600"),
            ("ratelimit", &*state),
        ];
        assert_eq!(response.response_headers_to_add.len(), 2, "each once");
        assert_eq!(headers(&response), fields.into());
    }
    assert_eq!(ask().unwrap().overall_code(), Code::OverLimit);
}
