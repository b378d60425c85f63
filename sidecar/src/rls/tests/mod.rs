//! The rate limit service over a real limiter, in tables: inputs, hits, statuses, refusals and
//! shadow.

mod quotas;
mod refusals;
mod rejected;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use plimsoll_client::Reason;
use plimsoll_client::testing::{ControlPlane, Decisions};
use plimsoll_policy::Source;
use prost::Message;
use prost_types::value::Kind;
use tonic::Code as GrpcCode;

use super::messages::{
    Code, DescriptorStatus, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse, Unit,
};
use super::*;
use crate::rules::Rules;

const RULES: &str = "
rls:
  domains:
    shop:
      descriptors:
        - key: account
          bucket: checkout
          tenant: { entry: account }
        - { key: path, bucket: search, cost: 5 }
        - { key: grpc, bucket: search, refusal: grpc }
        - { key: bare, bucket: search, refusal: bare }
        - { key: health, unlimited: true }
";

struct Sidecar {
    plane: ControlPlane,
    at_s: Cell<u64>,
    service: Service,
}

impl Sidecar {
    fn new() -> Self {
        let plane = ControlPlane::new(7);
        let (rules, _) = Rules::read(Source {
            name: "rules.yaml",
            text: RULES,
        })
        .unwrap();
        let limits = Limits::new(plane.limiter(), rules).unwrap();
        Self {
            plane,
            at_s: Cell::new(1_000_000),
            service: Service::new(limits, CancellationToken::new()),
        }
    }

    fn refusing(bucket: &str) -> Self {
        let sidecar = Self::new();
        sidecar
            .plane
            .refuse(bucket, Reason::ClusterOverload)
            .unwrap();
        sidecar
    }

    fn ask(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, InputError> {
        input::check(request)?;
        let in_force = self.service.limits.in_force();
        let (limiter, counters) = (self.service.limits.limiter(), self.service.counters());
        let deciders = Deciders {
            limiter,
            rules: &in_force.rules,
            counters: &counters,
            wiring: &in_force.rls,
        };
        let decisions = deciders
            .decide(request)
            .now_or_never()
            .expect("the fake store answers at once");
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(self.at_s.get());
        let (response, more) = response::of(&decisions, || at);
        let encoded = [response.encode_to_vec(), more.into()].concat();
        Ok(RateLimitResponse::decode(&*encoded).unwrap())
    }

    fn ask_one(&self, entries: &[(&str, &str)]) -> RateLimitResponse {
        self.ask(&request(vec![descriptor(entries)])).unwrap()
    }

    fn counts(&self, bucket: &str) -> Decisions {
        self.plane.counts(bucket).unwrap()
    }

    fn count(&self, metric: &str) -> u64 {
        let counters = self.service.counters();
        let all = counters
            .requests()
            .into_iter()
            .chain(counters.passed())
            .chain(counters.rejected());
        all.into_iter()
            .find(|(label, _)| *label == metric)
            .unwrap()
            .1
    }
}

fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    };
    RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        ..RateLimitDescriptor::default()
    }
}

fn request(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest {
        domain: "shop".to_owned(),
        descriptors,
        hits_addend: 0,
    }
}

fn codes(response: &RateLimitResponse) -> Vec<Code> {
    response
        .statuses
        .iter()
        .map(|status| status.code())
        .collect()
}

fn headers(response: &RateLimitResponse) -> BTreeMap<&str, &str> {
    let all = response.response_headers_to_add.iter();
    all.map(|header| (header.key.as_str(), header.value.as_str()))
        .collect()
}

fn metadata(response: &RateLimitResponse) -> BTreeMap<&str, &str> {
    let fields = response.dynamic_metadata.iter().flat_map(|of| &of.fields);
    fields
        .map(|(name, value)| match &value.kind {
            Some(Kind::StringValue(text)) => (name.as_str(), text.as_str()),
            other => panic!("{name} is {other:?}"),
        })
        .collect()
}

/// Callers of a proxy choose values, and the proxy serves a request that is answered by an error.
#[test]
fn long_or_invalid_value_is_still_limited() {
    let sidecar = Sidecar::refusing("search");
    let path = "/x".repeat(30_000);
    let long = request(vec![descriptor(&[("path", &path)])]);
    assert_eq!(sidecar.ask(&long).unwrap().overall_code(), Code::OverLimit);

    let mut message = request(vec![descriptor(&[("path", "/ab")])]).encode_to_vec();
    let at = message
        .windows(3)
        .position(|bytes| bytes == b"/ab")
        .unwrap();
    message[at + 1] = 0xff;
    let decoded = lossy::decode(&message).unwrap();
    assert_eq!(
        sidecar.ask(&decoded).unwrap().overall_code(),
        Code::OverLimit
    );
}

#[test]
fn hits_of_descriptor_or_request_multiply_cost() {
    for (of_request, own, is_negative, key, offered) in [
        (0, None, false, "account", 1),
        (1, None, false, "account", 1),
        (7, None, false, "account", 7),
        (7, Some(3), false, "account", 3),
        (7, Some(0), false, "account", 0),
        (0, Some(0), false, "account", 0),
        (7, Some(3), true, "account", 0),
        (0, None, false, "path", 5),
        (3, None, false, "path", 15),
        (3, Some(2), false, "path", 10),
        (3, Some(0), false, "path", 0),
    ] {
        let sidecar = Sidecar::new();
        let mut of = descriptor(&[(key, "acme")]);
        of.hits_addend = own;
        of.is_negative_hits = is_negative;
        let asked = RateLimitRequest {
            hits_addend: of_request,
            ..request(vec![of])
        };
        assert_eq!(sidecar.ask(&asked).unwrap().overall_code(), Code::Ok);
        let counted = sidecar.counts("checkout").offered + sidecar.counts("search").offered;
        assert_eq!(counted, offered, "{of_request} {own:?} {is_negative} {key}");
    }
}

#[test]
fn attempts_count_and_match_no_rule() {
    for (attempt, hits, retried) in [("1", 2, 0), ("2", 2, 10), ("2", 0, 0), ("x", 2, 0)] {
        let sidecar = Sidecar::refusing("search");
        let mut of = descriptor(&[("path", "/"), ("x-plimsoll-attempt", attempt)]);
        of.hits_addend = Some(hits);
        let asked = sidecar.ask(&request(vec![of])).unwrap();
        assert_eq!(asked.overall_code(), Code::OverLimit);
        let limiter = sidecar.plane.limiter();
        let counts = limiter.bucket("search").unwrap().key("/").counts();
        assert_eq!((counts.offered, counts.retried), (5 * hits, retried));
    }
}

#[test]
fn check_only_answers_without_counting() {
    let check = |key| RateLimitDescriptor {
        hits_addend: Some(0),
        ..descriptor(&[(key, "acme")])
    };
    let sidecar = Sidecar::refusing("checkout");
    assert_eq!(
        sidecar
            .ask(&request(vec![check("account")]))
            .unwrap()
            .overall_code(),
        Code::OverLimit
    );
    let mixed = request(vec![check("account"), descriptor(&[("path", "/")])]);
    assert_eq!(
        codes(&sidecar.ask(&mixed).unwrap()),
        [Code::OverLimit, Code::Ok]
    );
    assert_eq!(sidecar.counts("checkout"), Decisions::default());
    assert_eq!(
        sidecar.counts("search"),
        Decisions {
            offered: 5,
            refused: 5,
            ..Decisions::default()
        }
    );
}

#[test]
fn descriptor_without_bucket_is_ok_and_counted() {
    let sidecar = Sidecar::refusing("checkout");
    let unmatched = [
        descriptor(&[("other", "x")]),
        descriptor(&[]),
        // All entries must be consumed.
        descriptor(&[("account", "acme"), ("other", "x")]),
        descriptor(&[("path", "/"), ("path", "/")]),
    ];
    for of in unmatched {
        let response = sidecar.ask(&request(vec![of])).unwrap();
        assert_eq!(response.overall_code(), Code::Ok);
        assert_eq!(
            response.statuses,
            [DescriptorStatus {
                code: Code::Ok.into(),
                ..DescriptorStatus::default()
            }]
        );
    }
    let elsewhere = RateLimitRequest {
        domain: "other".to_owned(),
        ..request(vec![descriptor(&[("account", "a")])])
    };
    assert_eq!(sidecar.ask(&elsewhere).unwrap().overall_code(), Code::Ok);
    assert_eq!(
        (sidecar.count("no_rule"), sidecar.count("unlimited")),
        (5, 0)
    );
    let health = sidecar.ask_one(&[("health", "x")]);
    assert_eq!(
        (codes(&health), sidecar.count("unlimited")),
        (vec![Code::Ok], 1)
    );
    assert_eq!(sidecar.counts("checkout").offered, 0);
    // If another descriptor refuses, it stays OK in its place.
    let both = request(vec![
        descriptor(&[("other", "x")]),
        descriptor(&[("account", "a")]),
        descriptor(&[("health", "x")]),
    ]);
    assert_eq!(
        codes(&sidecar.ask(&both).unwrap()),
        [Code::Ok, Code::OverLimit, Code::Ok]
    );
}

#[test]
fn descriptors_are_decided_together() {
    let sidecar = Sidecar::refusing("search");
    let both = request(vec![
        descriptor(&[("account", "acme")]),
        descriptor(&[("path", "/")]),
    ]);
    let response = sidecar.ask(&both).unwrap();
    assert_eq!(
        (response.overall_code(), codes(&response)),
        (Code::OverLimit, vec![Code::Ok, Code::OverLimit])
    );
    // A refused request was not served, so it is dropped for the key that would have admitted it,
    // too.
    assert_eq!(
        sidecar.counts("checkout"),
        Decisions {
            offered: 1,
            refused: 1,
            ..Decisions::default()
        }
    );
    assert_eq!(
        sidecar.counts("search"),
        Decisions {
            offered: 5,
            refused: 5,
            ..Decisions::default()
        }
    );
    let alone = sidecar.ask_one(&[("account", "acme")]);
    assert_eq!(
        (alone.overall_code(), codes(&alone)),
        (Code::Ok, vec![Code::Ok])
    );
    assert_eq!((sidecar.count("ok"), sidecar.count("over_limit")), (1, 1));
}

#[test]
fn entry_tenant_has_its_own_counts() {
    let sidecar = Sidecar::new();
    for tenant in ["acme", "acme", "jo"] {
        sidecar.ask_one(&[("account", tenant)]);
    }
    let offered = |tenant| {
        sidecar
            .plane
            .tenant_counts("checkout", tenant)
            .unwrap()
            .offered
    };
    assert_eq!(["acme", "jo", "default"].map(offered), [2, 1, 0]);
}

#[test]
fn status_names_limit_and_estimated_remainder() {
    let sidecar = Sidecar::new();
    sidecar.plane.limit("checkout", 100.7).unwrap();
    let response = sidecar.ask_one(&[("account", "acme")]);
    let [status] = &response.statuses[..] else {
        panic!("{response:?}")
    };
    let limit = status.current_limit.clone().unwrap();
    assert_eq!(
        (limit.name.as_str(), limit.requests_per_unit, limit.unit()),
        ("checkout", 100, Unit::Second)
    );
    assert_eq!(
        (status.limit_remaining, status.duration_until_reset),
        (100, None)
    );
    sidecar.plane.limit("checkout", 0.0).unwrap();
    let response = sidecar.ask_one(&[("account", "acme")]);
    let [status] = &response.statuses[..] else {
        panic!("{response:?}")
    };
    assert_eq!(
        (status.code(), status.limit_remaining),
        (Code::OverLimit, 0)
    );
    assert!(
        status
            .duration_until_reset
            .is_some_and(|wait| wait.seconds >= 1),
        "{status:?}"
    );
    // Without a known limit the status has none.
    let response = sidecar.ask_one(&[("path", "/")]);
    assert_eq!(response.statuses[0].current_limit, None);
}

#[test]
fn refusal_has_the_headers_of_its_form() {
    let sidecar = Sidecar::refusing("search");
    let refused = |key| sidecar.ask_one(&[(key, "x")]);
    let problem = refused("path");
    let fields = headers(&problem);
    assert_eq!(fields["content-type"], "application/problem+json");
    assert_eq!(fields["x-ratelimit-reason"], "cluster_overload");
    assert!(
        fields["retry-after"].parse::<u64>().unwrap() >= 1,
        "{fields:?}"
    );
    let body = String::from_utf8(problem.raw_body.clone()).unwrap();
    assert!(
        body.contains("\"status\":429") && body.contains("cluster_overload"),
        "{body}"
    );
    let expected = [
        ("bucket", "search"),
        ("decision", "over_limit"),
        ("reason", "cluster_overload"),
    ];
    assert_eq!(metadata(&problem), expected.into());

    let bare = refused("bare");
    let mut without_type = fields.clone();
    without_type.remove("content-type");
    assert_eq!(
        headers(&bare).into_keys().collect::<Vec<_>>(),
        without_type.into_keys().collect::<Vec<_>>()
    );
    assert!(bare.raw_body.is_empty());

    let grpc = refused("grpc");
    let fields = headers(&grpc);
    let names: Vec<&str> = fields.keys().copied().collect();
    assert_eq!(
        names,
        [
            "grpc-retry-pushback-ms",
            "grpc-status-details-bin",
            "x-ratelimit-reason"
        ]
    );
    assert!(
        String::from_utf8(grpc.raw_body.clone())
            .unwrap()
            .starts_with("All callers together")
    );
}

#[test]
fn withheld_refusal_adds_one_header() {
    for is_killed in [false, true] {
        let sidecar = Sidecar::refusing("checkout");
        sidecar
            .plane
            .refuse("search", Reason::ClusterOverload)
            .unwrap();
        if is_killed {
            sidecar.plane.kill(true);
        } else {
            sidecar.plane.shadow("checkout", true).unwrap();
            sidecar.plane.shadow("search", true).unwrap();
        }
        let both = request(vec![
            descriptor(&[("account", "acme")]),
            descriptor(&[("path", "/")]),
        ]);
        let response = sidecar.ask(&both).unwrap();
        assert_eq!(
            (response.overall_code(), codes(&response)),
            (Code::Ok, vec![Code::Ok; 2])
        );
        let [header] = &response.request_headers_to_add[..] else {
            panic!("{response:?}")
        };
        assert_eq!(
            (header.key.as_str(), header.value.as_str()),
            ("x-plimsoll-shadow", "drop")
        );
        assert!(response.response_headers_to_add.is_empty() && response.raw_body.is_empty());
        let expected = [
            ("bucket", "checkout"),
            ("decision", "shadow"),
            ("reason", "cluster_overload"),
        ];
        assert_eq!(metadata(&response), expected.into());
        assert_eq!(sidecar.counts("checkout").would_refuse, 1);
        assert_eq!(sidecar.count("withheld"), 1);
    }
}

#[test]
fn rules_are_counted_and_empty_tenants_named() {
    let sidecar = Sidecar::new();
    let limiter = sidecar.plane.limiter();
    let both = request(vec![
        descriptor(&[("account", "")]),
        descriptor(&[("health", "1")]),
    ]);
    for sent in 1..=100 {
        sidecar.ask(&both).unwrap();
        let problems = limiter.status().problems;
        let is_told = problems
            .iter()
            .any(|of| of.problem == "no_tenant" && of.text.contains("actions of the proxy"));
        assert_eq!(is_told, sent == 100, "{sent}: {problems:?}");
    }
    let status = limiter.status();
    let counted: Vec<_> = status
        .rules
        .iter()
        .filter(|(_, count)| **count > 0)
        .collect();
    let expected = ["domain `shop`: account", "domain `shop`: health"].map(str::to_owned);
    assert_eq!(counted, [(&expected[0], &100), (&expected[1], &100)]);
    assert_eq!(status.rules.len(), 5);
    assert_eq!(status.tenants["invalid"], 100);
    sidecar.ask_one(&[("account", "acme")]);
    assert_eq!(limiter.status().problems, []);
}
