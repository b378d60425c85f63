//! Limits that descriptors bring along: where they hold, where they are withheld, and what they count.

use super::*;

#[test]
fn own_limit_holds_where_the_rule_takes_it_and_the_bucket_enforces() {
    let now = Instant::now();
    let sidecar = Sidecar::new();
    // A rule of any kind, so that the bucket enforces.
    sidecar.plane.limit("checkout", 1_000.0).unwrap();
    let ask = |of: RateLimitDescriptor, after| sidecar.ask_at(&request(vec![of]), now + after).unwrap();
    let two = || own_limit(2, Unit::Minute);
    let first: Vec<Code> = (0..4).map(|_| ask(two(), Duration::ZERO).overall_code()).collect();
    assert_eq!(first, [Code::Ok, Code::Ok, Code::OverLimit, Code::OverLimit]);
    let refused = ask(two(), Duration::ZERO);
    let limit = refused.statuses[0].current_limit.clone().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit(), limit.name.as_str()), (2, Unit::Minute, "checkout"));
    assert_eq!(headers(&refused)["x-ratelimit-reason"], "tenant_limit");
    assert_eq!(ask(two(), Duration::from_secs(31)).overall_code(), Code::Ok);
    assert_eq!(ask(own_limit(0, Unit::Second), Duration::ZERO).overall_code(), Code::OverLimit);
    // Refusals by it are not offered to the bucket, and another limit or descriptor has tokens of its own.
    assert_eq!(sidecar.counts("checkout"), Decisions { offered: 3, admitted: 3, ..Decisions::default() });
    assert_eq!(sidecar.count("own"), 4);
    assert_eq!(ask(own_limit(3, Unit::Minute), Duration::ZERO).overall_code(), Code::Ok);
    // A unit that is not known is no limit, and neither is one that no rule takes.
    let unknown =
        RateLimitDescriptor { limit: Some(RateLimitOverride { requests_per_unit: 0, unit: 99 }), ..two() };
    assert_eq!(ask(unknown, Duration::ZERO).overall_code(), Code::Ok);
    let untaken =
        RateLimitDescriptor { limit: own_limit(0, Unit::Second).limit, ..descriptor(&[("path", "/")]) };
    assert_eq!(ask(untaken, Duration::ZERO).overall_code(), Code::Ok);
}

#[test]
fn own_limit_is_withheld_in_shadow_while_killed_and_without_a_directive() {
    for (name, prepare) in [
        ("shadow", (|plane| plane.shadow("checkout", true).unwrap()) as fn(&ControlPlane)),
        ("killed", |plane| plane.kill(true)),
        ("without a directive", |plane| plane.admit("checkout").unwrap()),
    ] {
        let sidecar = Sidecar::new();
        sidecar.plane.limit("checkout", 1_000.0).unwrap();
        prepare(&sidecar.plane);
        let response = sidecar.ask(&request(vec![own_limit(0, Unit::Second)])).unwrap();
        assert_eq!(response.overall_code(), Code::Ok, "{name}");
        assert_eq!(response.request_headers_to_add.len(), 1, "{name}");
        assert_eq!((sidecar.count("own"), sidecar.count("own_shadow")), (0, 1), "{name}");
        assert_eq!(sidecar.counts("checkout").offered, 1, "{name}: the bucket is asked");
    }
}

#[test]
fn refused_request_takes_no_token_of_own_limits() {
    let sidecar = Sidecar::new();
    sidecar.plane.limit("checkout", 1_000.0).unwrap();
    sidecar.plane.refuse("search", Reason::ClusterOverload).unwrap();
    let now = Instant::now();
    let one = || own_limit(1, Unit::Year);
    for other in [descriptor(&[("path", "/")]), own_limit(0, Unit::Second)] {
        let both = request(vec![one(), other]);
        for _ in 0..3 {
            assert_eq!(codes(&sidecar.ask_at(&both, now).unwrap()), [Code::Ok, Code::OverLimit]);
        }
    }
    assert_eq!(sidecar.ask_at(&request(vec![one()]), now).unwrap().overall_code(), Code::Ok);
    assert_eq!(sidecar.ask_at(&request(vec![one()]), now).unwrap().overall_code(), Code::OverLimit);
}
