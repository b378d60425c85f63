//! Changed policies by example: what is held back, depending on the traffic, and the differences
//! that are shown.

use super::*;
use crate::BucketPolicy;
use crate::tests::rows;
use plimsoll_core::decision::Mode;
use plimsoll_core::names::{Bucket, Tenant};
use plimsoll_core::quantity::{Limit, Rate};

const ONE: &str = "{ default: {} }";

fn policy(buckets: &str, more: &str, tenants: &str) -> Policy {
    let text = format!("buckets: {buckets}\n{more}\n");
    let tenants = format!("tenants: {tenants}\n");
    let source = Source {
        name: "policy.yaml",
        text: &text,
    };
    Policy::read(
        source,
        Source {
            name: "tenants.yaml",
            text: &tenants,
        },
    )
    .unwrap()
    .0
}

fn traffic(rates: &[(&str, &str, f64)]) -> Offered {
    let mut offered = Offered::new();
    for (bucket, tenant, rate) in rates {
        let tenants = offered.entry(Bucket::new(bucket).unwrap()).or_default();
        tenants.insert(Tenant::new(tenant).unwrap(), *rate);
    }
    offered
}

fn limit(policy: &Policy, bucket: &Bucket) -> Limit {
    match policy.bucket(bucket) {
        Some(BucketPolicy {
            source: crate::LimitSource::Learned(_),
            ..
        }) => Limit::PerSecond(Rate::new(437.0).unwrap()),
        entry => entry.map_or(Limit::Unknown, BucketPolicy::limit),
    }
}

fn stage(policy: &Policy, entry: &str) -> Mode {
    policy
        .entries()
        .find(|(name, _)| name == entry)
        .unwrap()
        .1
        .mode
}

fn judge<T>(from: &Policy, to: &Policy, f: impl FnOnce(&Regime<'_>, &Regime<'_>) -> T) -> T {
    let before = Regime {
        policy: from,
        limit: &|bucket| limit(from, bucket),
        stage: &|entry| stage(from, entry),
    };
    let after = Regime {
        policy: to,
        limit: &|bucket| limit(to, bucket),
        stage: &|entry| stage(to, entry),
    };
    f(&before, &after)
}

pub(crate) fn reasons(from: &Policy, to: &Policy, traffic: &[Offered]) -> Vec<String> {
    judge(from, to, |before, after| {
        reasons_to_hold(before, after, traffic, 0)
    })
}

fn forecast_of(from: &Policy, to: &Policy, traffic: &[Offered]) -> Forecast {
    judge(from, to, |before, after| {
        forecast(before, after, traffic, 0)
    })
}

/// The reasons to hold back a change of one enforced bucket `b`, with these settings and this traffic of the
/// class `default`.
fn of_bucket(from: &str, to: &str, offered: f64) -> Vec<String> {
    let of = |settings: &str| {
        policy(
            &format!("{{ b: {{ mode: enforce, {settings} }} }}"),
            "",
            ONE,
        )
    };
    let traffic = if offered > 0.0 {
        vec![traffic(&[("b", "default", offered)])]
    } else {
        Vec::new()
    };
    reasons(&of(from), &of(to), &traffic)
}

/// Returns the only reason, if there is one.
fn some(why: &str) -> Vec<&str> {
    Vec::from_iter(Some(why).filter(|why| !why.is_empty()))
}

#[test]
fn limit_is_judged_by_refused_requests() {
    for [from, to, offered, why] in rows(
        r#"
        limit: 120 | limit: 61 | 100.0 | b: 39 % of all requests would be refused, 0 % now
        limit: 100 | limit: 50 | 80.0 | b: 37.5 % of all requests would be refused, 0 % now
        limit: 100 | limit: 50 | 1000.0 | b: 95 % of all requests would be refused, 90 % now
        limit: 100 | limit: 70 | 1000.0 |
        limit: 100 | limit: 50 | 40.0 |
        limit: 1000 | limit: 10 | 5.0 |
        limit: 100 | limit: 90 | 100.0 |
        limit: 100 | limit: 89 | 100.0 | b: 11 % of all requests would be refused, 0 % now
        limit: { learned: {} } | limit: 5 | 300.0 | b: 98.3 % of all requests would be refused, 0 % now
        limit: unlimited | limit: 100 | 200.0 | b: 50 % of all requests would be refused, 0 % now
        limit: unlimited | limit: 100 | 90.0 |
        limit: 9 | limit: 0 | 4.0 | b: 100 % of all requests would be refused, 0 % now
        "#,
    ) {
        let offered = offered.parse().unwrap();
        assert_eq!(
            of_bucket(&from, &to, offered),
            some(&why),
            "{from} to {to} at {offered}/s"
        );
    }
}

#[test]
fn idle_limit_is_judged_by_its_factor() {
    for [from, to, why] in rows(
        r#"
        limit: 100 | limit: 50 | b: limit 100 -> 50 is half or less; there was no traffic to judge by
        limit: 100 | limit: 51 |
        limit: 100 | limit: 0 | b: limit 100 -> 0 is half or less; there was no traffic to judge by
        limit: { learned: {} } | limit: 5 | b: limit 437 -> 5 is half or less; there was no traffic to judge by
        limit: unlimited | limit: 100 | b: limit 100 is new; there was no traffic to judge by
        limit: 9, tenant_limit: 4 | limit: 9, tenant_limit: 2 | b: tenant_limit 4 -> 2 is half or less; there was no traffic to judge by
        limit: 9 | limit: 9, tenant_limit: 2 | b: tenant_limit 2 is new; there was no traffic to judge by
        "#,
    ) {
        assert_eq!(of_bucket(&from, &to, 0.0), some(&why), "{from} to {to}");
    }
}

#[test]
fn opened_protection_is_held_under_any_traffic() {
    for [from, to, why] in rows(
        r#"
        limit: 100 | limit: 200 |
        limit: 100 | limit: 200.1 | b: limit 100 -> 200.1 is more than 2 times up
        limit: 0 | limit: 1 | b: limit 0 -> 1 is more than 2 times up
        limit: 100 | limit: unlimited | b: limit 100 is removed
        limit: 100 | limit: { prometheus: { url: http://p, query: q } } | b: limit 100 is replaced by one that is not known yet
        limit: 9, tenant_limit: 1 | limit: 9, tenant_limit: 2.5 | b: tenant_limit 1 -> 2.5 is more than 2 times up
        limit: 9, tenant_limit: 1 | limit: 9 | b: tenant_limit 1 is removed
        "#,
    ) {
        for offered in [0.0, 1.0] {
            assert_eq!(
                of_bucket(&from, &to, offered),
                some(&why),
                "{from} to {to} at {offered}/s"
            );
        }
    }
}

#[test]
fn starved_tenant_is_named_with_its_refusals() {
    let of = |acme: &str, floor: &str| {
        let tenants = format!(
            "{{ default: {{}}, acme: {{ weight: {acme} }}, free: {{ weight: 4 }} }}\n{floor}"
        );
        policy("{ b: { limit: 100, mode: enforce } }", "", &tenants)
    };
    let no_floor = "fairness: { min_floor_rps: 0 }";
    let both = [traffic(&[("b", "acme", 80.0), ("b", "free", 100.0)])];
    let starved = "b: tenant acme would be refused 100 % of its requests, 37.5 % now";
    assert_eq!(
        reasons(&of("4", no_floor), &of("0.001", no_floor), &both),
        [starved]
    );
    let others = "b: tenant free would be refused 80 % of its requests, 50 % now";
    assert_eq!(
        reasons(&of("4", no_floor), &of("1000", no_floor), &both),
        [others]
    );
    // A floor, or room for both, keeps the tenant from harm.
    let floor = "fairness: { min_floor_rps: 50 }";
    assert!(reasons(&of("4", floor), &of("0.001", floor), &both).is_empty());
    let little = [traffic(&[("b", "acme", 40.0), ("b", "free", 50.0)])];
    assert!(reasons(&of("4", no_floor), &of("0.001", no_floor), &little).is_empty());
    assert!(reasons(&of("4", no_floor), &of("0.001", no_floor), &[]).is_empty());
}

#[test]
fn requests_of_several_moments_are_added_up() {
    let of = |limit: u32| {
        policy(
            &format!("{{ b: {{ limit: {limit}, mode: enforce }} }}"),
            "",
            ONE,
        )
    };
    let moments = [0.0, 30.0, 90.0, 0.0, 30.0].map(|rate| traffic(&[("b", "default", rate)]));
    // Of 150 requests, 30 are above a rate of 60.
    assert_eq!(
        reasons(&of(100), &of(60), &moments),
        ["b: 20 % of all requests would be refused, 0 % now"]
    );
}

#[test]
fn delisted_tenants_are_judged_as_their_class() {
    let of = |tenants: &str| policy("{ b: { limit: 100, mode: enforce } }", "", tenants);
    let from = of("{ default: {}, a: { weight: 8 }, x: {}, y: {}, z: {}, w: {} }");
    let to = of("{ default: {}, x: {}, y: {}, z: {}, w: {} }");
    let offered = [traffic(&[("b", "a", 90.0), ("b", "default", 90.0)])];
    let held = reasons(&from, &to, &offered);
    assert_eq!(
        held,
        ["b: tenant a would be refused 44.4 % of its requests, 1.2 % now"]
    );
}

#[test]
fn ungated_rise_to_enforce_is_held() {
    let of = |mode: &str, gates: bool| {
        let rollout = format!("rollout: {{ require_gates: {gates} }}");
        policy(
            &format!("{{ b: {{ limit: 66, mode: {mode} }} }}"),
            &rollout,
            ONE,
        )
    };
    let gate = |from: &str| format!("b: goes from {from} to enforce without its gate");
    let effect = "b: 34 % of all requests would be refused, 0 % now".to_owned();
    let busy = [traffic(&[("b", "default", 100.0)])];
    assert_eq!(
        reasons(&of("shadow", true), &of("enforce", false), &busy),
        [effect.clone(), gate("shadow")]
    );
    assert_eq!(
        reasons(&of("canary", true), &of("enforce", false), &[]),
        [gate("canary")]
    );
    // Without an active gate, only the effect counts.
    assert_eq!(
        reasons(&of("shadow", false), &of("enforce", false), &busy),
        [effect]
    );
    assert!(reasons(&of("shadow", false), &of("enforce", false), &[]).is_empty());
    // A canary refuses its share.
    let canary = |percent: u32| {
        let rollout = format!("rollout: {{ canary_percent: {percent} }}");
        policy("{ b: { limit: 10, mode: canary } }", &rollout, ONE)
    };
    assert!(reasons(&canary(5), &canary(15), &busy).is_empty());
    let expected = "b: 45 % of all requests would be refused, 4.5 % now";
    assert_eq!(reasons(&canary(5), &canary(50), &busy), [expected]);
}

#[test]
fn limit_in_shadow_is_never_held() {
    let busy = [traffic(&[("api/a", "default", 100.0)])];
    let pattern = |mode: &str, more: &str| {
        policy(
            &format!("{{ \"api/*\": {{ limit: 5000, mode: {mode} }}, {more} }}"),
            "",
            ONE,
        )
    };
    for traffic in [&busy[..], &[]] {
        for mode in ["shadow", "enforce"] {
            let to = pattern(mode, "api/a: { limit: 5, mode: shadow }");
            assert!(
                reasons(&pattern(mode, ""), &to, traffic).is_empty(),
                "{mode}"
            );
        }
        let of = |limit: &str| policy(&format!("{{ b: {{ limit: {limit} }} }}"), "", ONE);
        for (from, to) in [
            ("100", "1"),
            ("100", "1000"),
            ("unlimited", "1"),
            ("100", "unlimited"),
        ] {
            assert!(
                reasons(&of(from), &of(to), traffic).is_empty(),
                "{from} to {to}"
            );
        }
    }
    // The same limits are held once they refuse.
    let to = pattern("enforce", "api/a: { limit: 5, mode: enforce }");
    let expected = "api/a: 95 % of all requests would be refused, 0 % now";
    assert_eq!(reasons(&pattern("enforce", ""), &to, &busy), [expected]);
}

#[test]
fn effective_limit_counts_wherever_it_is_written() {
    let of = |buckets: &str| policy(buckets, "", ONE);
    let exact =
        of("{ api/a: { limit: 100, mode: enforce }, \"api/*\": { limit: 100, mode: enforce } }");
    assert!(
        reasons(
            &exact,
            &of("{ \"api/*\": { limit: 100, mode: enforce } }"),
            &[]
        )
        .is_empty()
    );
    let one = of("{ api/a: { limit: 100, mode: enforce } }");
    assert_eq!(reasons(&exact, &one, &[]), ["api/*: the limit is removed"]);
    let none = of("{ b: { limit: 1 } }");
    assert_eq!(
        reasons(&exact, &none, &[]),
        ["api/a: the limit is removed", "api/*: the limit is removed"]
    );
    let new = of("{ b: { limit: 1 }, c: { limit: 9, mode: enforce } }");
    assert!(
        reasons(&none, &new, &[]).is_empty(),
        "a bucket without traffic may begin enforced"
    );
    let held = reasons(&none, &new, &[traffic(&[("c", "default", 12.0)])]);
    assert_eq!(held, ["c: 25 % of all requests would be refused, 0 % now"]);
    // A bucket under a pattern is judged by the pattern.
    let low =
        of("{ api/a: { limit: 100, mode: enforce }, \"api/*\": { limit: 9, mode: enforce } }");
    assert_eq!(
        reasons(
            &exact,
            &low,
            &[traffic(&[
                ("api/a", "default", 99.0),
                ("api/b", "default", 9.0)
            ])]
        ),
        [""; 0]
    );
    let held = reasons(&exact, &low, &[traffic(&[("api/b", "default", 12.0)])]);
    assert_eq!(
        held,
        ["api/b: 25 % of all requests would be refused, 0 % now"]
    );
}

#[test]
fn one_fifth_of_tenants_may_be_removed() {
    let of = |names: &[&str]| {
        let all: Vec<String> = names.iter().map(|name| format!("{name}: {{}}")).collect();
        policy(
            "{ b: { limit: 1 } }",
            "",
            &format!("{{ default: {{}}, {} }}", all.join(", ")),
        )
    };
    let five = of(&["a", "b", "c", "d"]);
    assert!(reasons(&five, &of(&["a", "b", "c"]), &[]).is_empty());
    assert!(reasons(&five, &of(&["a", "b", "c", "x", "y"]), &[]).is_empty());
    assert_eq!(
        reasons(&five, &of(&["a", "b"]), &[]),
        ["2 of 5 tenants are removed, more than 20 %"]
    );
}

#[test]
fn reasons_are_bounded() {
    let of = |limit: u32| {
        let all: Vec<String> = (0..50)
            .map(|n| format!("b{n}: {{ limit: {limit}, mode: enforce }}"))
            .collect();
        policy(&format!("{{ {} }}", all.join(", ")), "", ONE)
    };
    let held = reasons(&of(1), &of(3), &[]);
    assert_eq!(
        (held.len(), held[REASONS_MAX].as_str()),
        (REASONS_MAX + 1, "and 30 more")
    );
    let tenants: Vec<(String, f64)> = (0..9).map(|n| (format!("t{n}"), 10.0)).collect();
    let rates: Vec<(&str, &str, f64)> = tenants
        .iter()
        .map(|(name, rate)| ("b0", name.as_str(), *rate))
        .collect();
    let held = reasons(&of(100), &of(1), &[traffic(&rates)]);
    let mut in_b0 = held.iter().filter(|reason| reason.starts_with("b0: "));
    assert_eq!(
        in_b0.next_back().unwrap(),
        "b0: 6 more tenants would be refused more"
    );
}

/// Every field of the two files with two values. The second replaces the first, one at a time.
const FIELDS: &[(&str, &str, &str)] = &[
    ("kill_switch: ", "false", "true"),
    ("guardrails: ", "on", "off"),
    ("limit: ", "100", "120"),
    ("percentile: ", "95", "90"),
    ("days: ", "7", "8"),
    ("headroom: ", "1.2", "1.3"),
    ("min: ", "200", "201"),
    ("max: ", "5000", "5001"),
    ("until_history: ", "800", "801"),
    ("query: ", "qps", "rps"),
    ("url: ", "http://p", "http://q"),
    ("tenant_limit: ", "20", "21"),
    ("burst_s: ", "0.25", "0.3"),
    ("release: ", "auto", "never"),
    ("coin: ", "dithered", "coherent"),
    ("candidate: ", "90", "91"),
    ("mode: ", "shadow", "canary"),
    ("canary_percent: ", "10", "11"),
    ("auto_promote: ", "false", "true"),
    ("min_days: ", "0.00002", "0.00003"),
    ("window_h: ", "24", "23"),
    ("max_drop_ratio: ", "0.005", "0.006"),
    ("min_hours: ", "48", "47"),
    ("window_min: ", "15", "14"),
    ("max_drop_ratio: ", "0.001", "0.002"),
    ("max_p99_delta_ms: ", "5", "6"),
    ("min_samples: ", "1000", "1001"),
    ("require_gates: ", "true", "false"),
    ("query: ", "tickets", "calls"),
    ("weight: ", "4", "8"),
    ("burst_multiplier: ", "3", "2"),
    ("notes: ", "old", "new"),
    ("boost: ", "2", "3"),
    (
        "boost_until: ",
        "2026-12-01T00:00:00Z",
        "2026-12-02T00:00:00Z",
    ),
    ("algorithm: ", "deficit_round_robin", "weighted_max_min"),
    ("reweight_interval_s: ", "5", "6"),
    ("min_floor_rps: ", "5", "7"),
];

const EVERY_FIELD: &str = "kill_switch: false
guardrails: on
buckets:
  b: { limit: 100, tenant_limit: 20, burst_s: 0.25, release: auto, coin: dithered, candidate: 90, mode: shadow }
  learned:
    limit: { learned: { percentile: 95, days: 7, headroom: 1.2, min: 200, max: 5000, until_history: 800 } }
  queried: { limit: { prometheus: { url: http://p, query: qps } } }
rollout:
  canary_percent: 10
  auto_promote: false
  shadow: { min_days: 0.00002, window_h: 24, max_drop_ratio: 0.005 }
  canary: { min_hours: 48, window_min: 15, max_drop_ratio: 0.001, max_p99_delta_ms: 5 }
  min_samples: 1000
  require_gates: true
  queries: [ { name: own, url: http://s, query: tickets, max: 20 } ]
---
tenants:
  default: {}
  acme: { weight: 4, burst_multiplier: 3, notes: old, boost: 2, boost_until: 2026-12-01T00:00:00Z }
fairness: { algorithm: deficit_round_robin, reweight_interval_s: 5, min_floor_rps: 5 }
";

fn read(both: &str) -> Policy {
    let (policy, tenants) = both.split_once("---\n").unwrap();
    let source = Source {
        name: "policy.yaml",
        text: policy,
    };
    Policy::read(
        source,
        Source {
            name: "tenants.yaml",
            text: tenants,
        },
    )
    .unwrap()
    .0
}

#[test]
fn changed_field_shows_both_values() {
    let from = read(EVERY_FIELD);
    for (field, one, other) in FIELDS {
        let written = format!("{field}{one}");
        assert!(EVERY_FIELD.contains(&written), "{written}");
        let to = read(&EVERY_FIELD.replacen(&written, &format!("{field}{other}"), 1));
        let found = differences(&from, &to);
        assert!(!found.is_empty(), "{written} to {other} is not shown");
        let name = field.trim_end_matches(": ");
        for Difference { path, from, to } in &found {
            let (from, to) = (
                from.as_deref().unwrap_or_default(),
                to.as_deref().unwrap_or_default(),
            );
            assert!(
                path.ends_with(name) && from == *one && to == *other,
                "{path}: {from} -> {to}"
            );
        }
    }
    assert!(differences(&from, &from).is_empty());
}

#[test]
fn new_and_removed_parts_appear_as_written() {
    let from = policy(
        "{ b: { limit: 100 }, c: { limit: 1, burst_s: 2 } }",
        "",
        ONE,
    );
    let to = policy(
        "{ b: { limit: 1000, mode: enforce }, d: { limit: unlimited, coin: coherent } }",
        "",
        "{ default: {}, acme: { weight: 1 } }",
    );
    let shown: Vec<String> = differences(&from, &to)
        .iter()
        .map(ToString::to_string)
        .collect();
    let expected = [
        "~ buckets.b.limit: 100 -> 1000",
        "+ buckets.b.mode: enforce",
        "- buckets.c.burst_s: 2",
        "- buckets.c.limit: 1",
        "+ buckets.d.coin: coherent",
        "+ buckets.d.limit: unlimited",
        "+ tenants.acme.weight: 1",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn extra_gate_differs_by_its_name() {
    let of = |queries: &str| {
        policy(
            &format!("{{ b: {{ limit: 1, rollout: {{ queries: [ {queries} ] }} }} }}"),
            "",
            ONE,
        )
    };
    let from = of(
        "{ name: a, url: http://p, query: up, max: 1 }, { name: b, url: http://p, query: up, min: 2 }",
    );
    let to = of(
        "{ name: b, url: http://p, query: up, min: 0.5 }, { name: c, url: http://p, query: 'x > 1', max: 3 }",
    );
    let shown: Vec<String> = differences(&from, &to)
        .iter()
        .map(ToString::to_string)
        .collect();
    let expected = [
        "- buckets.b.rollout.queries.a.max: 1",
        "- buckets.b.rollout.queries.a.name: a",
        "- buckets.b.rollout.queries.a.query: up",
        "- buckets.b.rollout.queries.a.url: http://p",
        "~ buckets.b.rollout.queries.b.min: 2 -> 0.5",
        "+ buckets.b.rollout.queries.c.max: 3",
        "+ buckets.b.rollout.queries.c.name: c",
        "+ buckets.b.rollout.queries.c.query: x > 1",
        "+ buckets.b.rollout.queries.c.url: http://p",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn quota_is_judged_by_its_own_numbers() {
    let of = |quotas: &str, attached: &str, mode: &str| {
        let buckets = format!(
            "{{ b: {{ limit: 9, mode: {mode}, quotas: {attached} }}, c: {{ limit: 9, mode: {mode}, quotas: {attached} }} }}"
        );
        policy(&buckets, &format!("quotas: {{ {quotas} }}"), ONE)
    };
    for [quotas, attached, to_quotas, to_attached, why] in rows(
        r#"
        q: { max: 100, every: 1h } | [q] | q: { max: 51, every: 1h } | [q] |
        q: { max: 100, every: 1h } | [q] | q: { max: 50, every: 1h } | [q] | quota q: 100 and 100 every 1h -> 50 and 50 every 1h is half or less
        q: { max: 100, every: 1h } | [q] | q: { max: 100, every: 2h } | [q] | quota q: 100 and 100 every 1h -> 100 and 100 every 2h is half or less
        q: { max: 100, every: 1h } | [q] | q: { max: 200, every: 1h } | [q] |
        q: { max: 100, every: 1h } | [q] | q: { max: 201, every: 1h } | [q] | quota q: 100 and 100 every 1h -> 201 and 201 every 1h is more than 2 times up
        q: { max: 100, every: 1h } | [q] | q: { max: 100, every: 1h, key: global } | [q] | quota q: all tenants share what each had by itself
        q: { max: 100, every: 1h } | [] | q: { max: 100, every: 1h } | [q] | quota q: it is new to a bucket that refuses; nothing was counted to judge by
        q: { max: 100, every: 1h } | [q] | q: { max: 100, every: 1h } | [] | quota q: a bucket that refuses no longer attaches it
        q: { max: 100, every: 1h } | [q] | | [] | quota q: it is removed
        "#,
    ) {
        let from = of(&quotas, &attached, "enforce");
        let [enforced, shadow] =
            ["enforce", "shadow"].map(|mode| of(&to_quotas, &to_attached, mode));
        assert_eq!(reasons(&from, &enforced, &[]), some(&why), "{to_quotas}");
        assert_eq!(
            reasons(&from, &shadow, &[]),
            [""; 0],
            "it refuses nothing after the change"
        );
    }
}

#[test]
fn quota_of_a_plan_is_judged_and_shown() {
    let with = |more: &str, mode: &str| {
        let buckets = format!("{{ b: {{ limit: 9, mode: {mode}, quotas: [q] }} }}");
        let tenants = format!("{{ default: {{}}, acme: {{ plan: pro }}, solo: {{}} }}\n{more}");
        policy(&buckets, "quotas: { q: { max: 100, every: 1h } }", &tenants)
    };
    let plans = |free, pro| {
        format!(
            "plans: {{ free: {{ quotas: {{ q: {{ max: {free} }} }} }}, pro: {{ quotas: {{ q: {{ max: {pro} }} }} }} }}"
        )
    };
    let change = |from, to, rest: &str| {
        format!("quota q: {from} and {from} every 1h -> {to} and {to} every 1h for {rest}")
    };
    for (to, expected) in [
        (plans(20, 1_000), vec![]),
        (plans(11, 2_000), vec![]),
        (
            plans(10, 1_000),
            vec![change(20, 10, "plan free is half or less")],
        ),
        (
            plans(20, 2_001),
            vec![change(
                1_000,
                2_001,
                "plan pro and 1 more is more than 2 times up",
            )],
        ),
        (
            "plans: { free: {}, pro: {} }".to_owned(),
            vec![
                change(20, 100, "plan free is more than 2 times up"),
                change(1_000, 100, "plan pro and 1 more is half or less"),
            ],
        ),
    ] {
        let [from, enforced] = [&plans(20, 1_000), &to].map(|of| with(of, "enforce"));
        assert_eq!(reasons(&from, &enforced, &[]), expected, "{to}");
        assert_eq!(reasons(&from, &with(&to, "shadow"), &[]), [""; 0], "{to}");
    }
    let [from, to] = [10, 20].map(|free| with(&plans(free, 5), "enforce"));
    let shown: Vec<String> = differences(&from, &to)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(shown, ["~ plans.free.quotas.q.max: 10 -> 20"]);
}

#[test]
fn forecast_has_gains_beside_losses() {
    let of = |weights: &str| policy("{ b: { mode: enforce, limit: 100 } }", "", weights);
    let (from, to) = (
        of("{ default: {}, acme: { weight: 3 }, zeta: {} }"),
        of("{ default: {}, acme: { weight: 1 }, zeta: { weight: 3 } }"),
    );
    let offers = [("b", "acme", 100.0), ("b", "zeta", 100.0)];
    let moments = [traffic(&offers), Offered::new(), traffic(&offers)];
    let found = forecast_of(&from, &to, &moments);
    let shown = |shifts: &Shifts| -> Vec<(Option<String>, [f64; 3])> {
        let round = |share: f64| (share * 1_000.0).round() / 1_000.0;
        let row = |shift: &Shift| {
            let tenant = shift.tenant.as_ref().map(ToString::to_string);
            (
                tenant,
                [shift.offered_rps, shift.before, shift.after].map(round),
            )
        };
        assert_eq!(shifts.more, 0);
        shifts.largest.iter().map(row).collect()
    };
    let tenant = |name: &str, figures| vec![(Some(name.to_owned()), figures)];
    assert_eq!(shown(&found.buckets), [(None, [200.0, 0.5, 0.5])]);
    assert_eq!(
        shown(&found.refused_more),
        tenant("acme", [100.0, 0.25, 0.75])
    );
    assert_eq!(
        shown(&found.refused_less),
        tenant("zeta", [100.0, 0.75, 0.25])
    );
    let none = forecast_of(&from, &to, &[Offered::new()]);
    assert_eq!(none, Forecast::default());
}

#[test]
fn forecast_names_the_largest_changes() {
    let names: Vec<String> = (0..FORECAST_MAX + 5).map(|n| format!("b{n}")).collect();
    let of = |limit: usize| {
        let bucket = |name: &String| format!("{name}: {{ mode: enforce, limit: {limit} }}, ");
        let buckets: String = names.iter().map(bucket).collect();
        policy(&format!("{{ {buckets} }}"), "", ONE)
    };
    let (from, to) = (of(1_000), of(10));
    let rates: Vec<(&str, &str, f64)> = names
        .iter()
        .zip(11..)
        .map(|(name, rate)| (name.as_str(), "default", f64::from(rate)))
        .collect();
    let found = forecast_of(&from, &to, &[traffic(&rates)]);
    assert_eq!(
        (found.buckets.largest.len(), found.buckets.more),
        (FORECAST_MAX, 5)
    );
    assert_eq!(
        found.buckets.largest[0].bucket.as_str(),
        "b24",
        "the worst first"
    );
    assert_eq!(
        found.refused_more,
        Shifts::default(),
        "a tenant alone is its bucket"
    );
}
