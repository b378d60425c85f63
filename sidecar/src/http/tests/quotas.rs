//! Exact quotas behind checks over HTTP, in every dialect.

use std::time::Duration;

use plimsoll_core::names::Tenant;
use plimsoll_core::quota::{OnStoreError, Quota, QuotaKey, QuotaRate};
use serde_json::json;

use super::*;

const DAY: Duration = Duration::from_secs(86_400);

fn with_quota(rules: Option<&str>) -> Port {
    let port = rules.map_or_else(Port::new, Port::with_rules);
    port.plane.quota("checkout", 1, DAY).unwrap();
    port
}

#[test]
fn proxies_forward_quota_and_reset() {
    let rules = "http:\n  tenant: { header: x-tenant }\n  rules:\n    - { prefix: /checkout, bucket: checkout }\n";
    for (rules, path, refused) in [
        (None, "/check", 429),
        (None, "/nginx", 403),
        (Some(rules), "/check", 429),
    ] {
        let port = with_quota(rules);
        let fields = [
            ("x-plimsoll-bucket", "checkout"),
            ("x-plimsoll-tenant", "acme"),
            ("x-tenant", "acme"),
            ("x-forwarded-method", "GET"),
            ("x-forwarded-uri", "/checkout/7"),
        ];
        let admitted = port.get(path, &fields);
        assert!(admitted.status < 300, "{path}");
        assert_eq!(
            admitted.header("ratelimit-policy"),
            Some("\"checkout\";q=1;w=86400"),
            "{path}"
        );
        assert_eq!(
            admitted.header("ratelimit"),
            Some("\"checkout\";r=0;t=86400"),
            "{path}"
        );
        // From the store, then from memory.
        for _ in 0..2 {
            let answer = port.get(path, &fields);
            assert_eq!(answer.status, refused, "{path}: {answer:?}");
            assert_eq!(
                answer.header("ratelimit-policy"),
                Some("\"checkout\";q=1;w=86400"),
                "{path}"
            );
            assert_eq!(answer.header("retry-after"), Some("86400"));
            assert_eq!(
                answer.header("x-ratelimit-reason"),
                Some("tenant_quota_exceeded")
            );
        }
        assert_eq!(port.plane.quota_requests(), 2, "{path}");
    }
}

#[test]
fn quota_left_is_of_the_plan() {
    let port = Port::with_rules("http: { plan: { header: x-plan } }");
    let rate = |max| QuotaRate::new(max, max, 86_400_000).unwrap();
    let (name, key) = ("calls".parse().unwrap(), QuotaKey::Tenant);
    let quota = Quota::new(name, rate(1), key, OnStoreError::Deny, 1).unwrap();
    let free = (Tenant::class_of_plan("free").unwrap(), rate(3));
    let quotas = vec![quota.with_overrides([free]).unwrap()];
    port.plane.quotas("checkout", quotas).unwrap();
    let fields = [
        ("x-plimsoll-bucket", "checkout"),
        ("x-plimsoll-tenant", "jo"),
        ("x-plan", "free"),
    ];
    for left in [2, 1, 0] {
        let admitted = port.get("/check", &fields);
        let policy = admitted.header("ratelimit-policy");
        assert_eq!(policy, Some("\"calls\";q=3;w=86400"));
        let expected = format!("\"calls\";r={left};t=86400");
        assert_eq!(admitted.header("ratelimit"), Some(&*expected));
    }
    assert_eq!(port.get("/check", &fields).status, 429);
}

#[test]
fn json_names_the_quota() {
    let port = with_quota(None);
    let body = r#"{"bucket": "checkout", "tenant": "acme"}"#;
    let quota = json!({"name": "checkout", "max": 1, "refill": 1, "every_ms": 86_400_000});
    let mut left = quota.clone();
    (left["remaining"], left["reset_ms"]) = (json!(0), json!(86_400_000));
    assert_eq!(
        port.post("/v1/check", body).json(),
        json!({"allowed": true, "quota": left})
    );
    let refused = json!({
        "allowed": false, "reason": "tenant_quota_exceeded", "retry_after_ms": 86_400_000, "quota": quota,
    });
    assert_eq!(port.post("/v1/check", body).json(), refused);
    port.plane.kill(true);
    let withheld = json!({"allowed": true, "withheld": "tenant_quota_exceeded", "quota": quota});
    assert_eq!(port.post("/v1/check", body).json(), withheld);
}

#[test]
fn batch_is_decided_separately_or_together() {
    let one = r#"{"bucket": "checkout", "tenant": "acme"}"#;
    let other = r#"{"bucket": "search", "tenant": "acme"}"#;
    for (together, allowed) in [
        (false, vec![true, false, true]),
        (true, vec![false, true, true]),
    ] {
        let port = with_quota(None);
        let body = format!(r#"{{"requests": [{one}, {one}, {other}], "together": {together}}}"#);
        if together {
            // A used-up quota refuses the batch as a whole.
            port.post("/v1/check", one);
        }
        let answer = port.post("/v1/check", &body).json();
        let results = answer["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|result| result["allowed"] == true);
        assert_eq!(results.collect::<Vec<_>>(), allowed, "{answer}");
        assert_eq!(answer.get("allowed"), together.then_some(&json!(false)));
    }
}
