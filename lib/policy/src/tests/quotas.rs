//! Exact quotas in policies: values, defaults, refusals with their places, and changes.

use plimsoll_core::quota::{OnStoreError, QuotaKey};

use super::*;

fn with(quotas: &str, attached: &str) -> String {
    format!("quotas:\n  {quotas}\nbuckets:\n  b: {{ limit: 1, quotas: {attached} }}\n")
}

#[test]
fn quotas_have_defaults_and_buckets_share_them() {
    let text = "quotas:
  calls: { max: 10000, every: 1h }
  pages: { max: 500, refill: 50, every: 1m 30s, key: tenant, on_store_error: deny, lease: 100 }
  total: { max: 1e6, every: 30days, key: global, on_store_error: allow }
buckets:
  checkout: { limit: 1000, quotas: [pages, calls] }
  \"api/*\": { limit: unlimited, quotas: [calls] }
  plain: { limit: 5 }
  all: { limit: 5, quotas: [total] }
";
    let (policy, warnings) = accepted(text, ONE_CLASS_TENANTS);
    assert_eq!(warnings, []);
    let shown = |quota: &Quota| {
        let numbers = [
            quota.rate.max(),
            quota.rate.refill(),
            quota.rate.every_ms(),
            quota.lease(),
        ];
        (numbers, quota.key, quota.on_store_error)
    };
    let calls = (
        [10_000, 10_000, 3_600_000, 1],
        QuotaKey::Tenant,
        OnStoreError::AllowBounded,
    );
    let pages = ([500, 50, 90_000, 100], QuotaKey::Tenant, OnStoreError::Deny);
    let total = (
        [1_000_000, 1_000_000, 2_592_000_000, 1],
        QuotaKey::Global,
        OnStoreError::Allow,
    );
    let all: Vec<_> = policy
        .quotas()
        .map(|quota| (quota.name.as_str(), shown(quota)))
        .collect();
    assert_eq!(all, [("calls", calls), ("pages", pages), ("total", total)]);
    for (name, attached) in [
        ("checkout", &["pages", "calls"][..]),
        ("api/x", &["calls"]),
        ("plain", &[]),
        ("all", &["total"]),
    ] {
        let quotas = &bucket(&policy, name).quotas;
        let names: Vec<&str> = quotas.iter().map(|quota| quota.name.as_str()).collect();
        assert_eq!(names, attached, "{name}");
    }
    let same = [("checkout", 1), ("api/x", 0)]
        .map(|(name, at)| Arc::clone(&bucket(&policy, name).quotas[at]));
    assert!(Arc::ptr_eq(&same[0], &same[1]));
}

#[test]
fn quotas_are_refused_with_their_place() {
    let eight = (0..9).map(|n| format!("\n  q{n}: {{ max: 1, every: 1s }}"));
    let nine = format!("q: {{ max: 1, every: 1s }}{}", eight.collect::<String>());
    for [quotas, attached, place, path, words] in rows(
        r#"
        q: { max: 0, every: 1h } | [q] | 2:13 | quotas.q.max | from 1 on
        q: { max: -5, every: 1h } | [q] | 2:13 | quotas.q.max | 0 or more
        q: { max: 1.5, every: 1h } | [q] | 2:13 | quotas.q.max | whole number
        q: { max: 9007199254740992, every: 1h } | [q] | 2:13 | quotas.q.max | 2^53
        q: { max: 5, refill: 0, every: 1h } | [q] | 2:24 | quotas.q.refill | from 1 on
        q: { max: 5 } | [q] | 2:3 | quotas.q.every | missing
        q: { every: 1h } | [q] | 2:3 | quotas.q.max | missing
        q: { max: 5, every: 1 fortnight } | [q] | 2:23 | quotas.q.every | 1h
        q: { max: 5, every: 0s } | [q] | 2:23 | quotas.q.every | between 1ms and 10 years
        q: { max: 5, every: 11years } | [q] | 2:23 | quotas.q.every | between 1ms and 10 years
        q: { max: 5, every: 1500us } | [q] | 2:23 | quotas.q.every | milliseconds
        q: { max: 5, every: 3600 } | [q] | 2:23 | quotas.q.every | 1h
        q: { max: 5, every: 1h, key: user } | [q] | 2:32 | quotas.q.key | `tenant`
        q: { max: 5, every: 1h, on_store_error: fail } | [q] | 2:43 | quotas.q.on_store_error | `deny`
        q: { max: 5, every: 1h, lease: 6 } | [q] | 2:34 | quotas.q.lease | 1 to 5
        q: { max: 5, every: 1h, lease: 0 } | [q] | 2:34 | quotas.q.lease | from 1 on
        q: { max: 9000000, every: 1h, lease: 1000001 } | [q] | 2:40 | quotas.q.lease | 1 to 1000000
        q: { max: 5, every: 1h, burst: 6 } | [q] | 2:27 | quotas.q.burst | unknown field
        "{q}": { max: 5, every: 1h } | [] | 2:3 | quotas."{q}" | letters
        calls: { max: 5, every: 1h } | [cals] | 4:27 | buckets.b.quotas.0 | did you mean `calls`
        calls: { max: 5, every: 1h } | calls | 4:26 | buckets.b.quotas | not a list write a list
        calls: 5 | [calls] | 2:10 | quotas.calls | not a map write fields
        calls: { max: 5, every: 1h } | [calls, calls] | 4:34 | buckets.b.quotas.1 | twice
        q: { max: 5, every: 1h }\n  g: { max: 5, every: 1h, key: global } | [q, g] | 5:30 | buckets.b.quotas.1 | one slot
        NINE | [q, q0, q1, q2, q3, q4, q5, q6, q7] | 13:26 | buckets.b.quotas | at most 8
        "#,
    ) {
        let text = with(&quotas.replace("NINE", &nine), &attached);
        let error = read(&text, ONE_CLASS_TENANTS).map(drop).expect_err(&text);
        let fault = &error.faults()[0];
        assert_eq!(
            (fault.place.to_string(), &fault.path),
            (place, &path),
            "{text}\n{fault}"
        );
        assert!(
            format!("{} {}", fault.message, fault.hint).contains(&words),
            "{text}\n{fault}"
        );
        assert_eq!(
            error.faults().len(),
            1,
            "a faulty quota is no unknown one at its buckets: {error}"
        );
    }
}

#[test]
fn quotas_are_accepted_up_to_their_room() {
    let quotas = |count: usize| {
        let entries: String = (0..count)
            .map(|at| format!("  q{at}: {{ max: 1, every: 1s }}\n"))
            .collect();
        format!("buckets: {{}}\nquotas:\n{entries}")
    };
    accepted(&quotas(QUOTAS_MAX), ONE_CLASS_TENANTS);
    let error = read(&quotas(QUOTAS_MAX + 1), ONE_CLASS_TENANTS).unwrap_err();
    assert!(error.faults()[0].message.contains("QUOTAS_MAX"), "{error}");
}

#[test]
fn unused_quota_is_a_warning() {
    let (_, warnings) = accepted(&with("q: { max: 5, every: 1h }", "[]"), ONE_CLASS_TENANTS);
    let [warning] = &warnings[..] else {
        panic!("{warnings:?}")
    };
    assert_eq!(
        (warning.path.as_str(), warning.at),
        ("quotas.q", SourcePlace { line: 2, column: 3 })
    );
    assert!(warning.message.contains("no bucket attaches"), "{warning}");
}

#[test]
fn changed_quotas_are_shown_field_by_field() {
    let policy = |quotas, attached| accepted(&with(quotas, attached), ONE_CLASS_TENANTS).0;
    let shown = |from: &Policy, to: &Policy| -> Vec<String> {
        differences(from, to)
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    let none = accepted("buckets:\n  b: { limit: 1 }\n", ONE_CLASS_TENANTS).0;
    let hourly = policy("q: { max: 5, every: 1h }", "[q]");
    let daily = policy("q: { max: 50, refill: 5, every: 1day, lease: 2 }", "[q]");
    assert_eq!(shown(&hourly, &hourly), [""; 0]);
    assert_eq!(
        shown(&none, &hourly),
        [
            "+ buckets.b.quotas.0: q",
            "+ quotas.q.every: 1h",
            "+ quotas.q.max: 5"
        ]
    );
    assert_eq!(
        shown(&hourly, &daily),
        [
            "~ quotas.q.every: 1h -> 1day",
            "+ quotas.q.lease: 2",
            "~ quotas.q.max: 5 -> 50",
            "+ quotas.q.refill: 5"
        ]
    );
}
