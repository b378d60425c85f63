//! Policies by example: parsed values, and refusals with their places.

mod overrides;
mod plans;
mod quotas;
mod refusals;
mod room;
mod spellings;

use std::time::Duration;

use super::*;
use plimsoll_core::decision::{Coin, Mode};
use plimsoll_core::quantity::{Limit, Rate};
use plimsoll_core::rollout::Bound;

const FULL_POLICY: &str = r#"
kill_switch: false
guardrails: on
quotas:
  api_calls: { max: 10000, refill: 5000, every: 1h, key: tenant, on_store_error: allow_bounded, lease: 100 }
buckets:
  checkout:
    limit: 1000
    tenant_limit: 200
    burst_s: 0.25
    release: auto
    coin: dithered
    candidate: 900
    mode: enforce
    quotas: [api_calls]
  learned:
    limit: { learned: { percentile: 95, days: 7, headroom: 1.2, min: 200, max: 5000, until_history: 800 } }
  queried:
    limit: { prometheus: { url: http://prometheus:9090, query: 'sum(rate(x[5m]))', min: 200, max: 5000 } }
    release: never
    coin: coherent
    rollout: { canary_percent: 50, shadow: { window_h: 1 }, queries: [ { name: own, url: http://p, query: up, min: 0 } ] }
  free: { limit: unlimited }
  "api/*": { limit: 50000, mode: shadow }
rollout:
  canary_percent: 10
  auto_promote: false
  shadow: { min_days: 7, window_h: 24, max_drop_ratio: 0.005 }
  canary: { min_hours: 48, window_min: 15, max_drop_ratio: 0.001, max_p99_delta_ms: 5 }
  min_samples: 1000
  require_gates: true
  queries:
    - { name: support-tickets, url: http://prometheus:9090, query: 'sum(increase(tickets_total[1h]))', max: 20 }
    - { name: error-budget, url: http://prometheus:9090, query: slo_budget_left, min: 0.1 }
"#;
const FULL_TENANTS: &str = r#"
tenants:
  default:         { weight: 1.0, burst_multiplier: 1.5 }
  enterprise_acme: { weight: 4.0, burst_multiplier: 3.0, notes: "Q2 contract" }
  free_tier:       { weight: 0.25, burst_multiplier: 1.0, boost: 2.0, boost_until: 2026-12-01T00:00:00Z }
fairness:
  algorithm: deficit_round_robin
  reweight_interval_s: 5
  min_floor_rps: 5
"#;

fn read(policy: &str, tenants: &str) -> Result<(Policy, Vec<Warning>), PolicyError> {
    Policy::read(
        Source {
            name: "policy.yaml",
            text: policy,
        },
        Source {
            name: "tenants.yaml",
            text: tenants,
        },
    )
}

/// Returns the cells of each line of a table, which ` |` divides. `\n` stands for a line break.
pub(crate) fn rows<const N: usize>(table: &str) -> impl Iterator<Item = [String; N]> {
    let lines = table.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| {
        let cells = line.split(" |");
        let cells: Vec<String> = cells.map(|it| it.trim().replace("\\n", "\n")).collect();
        cells.try_into().unwrap_or_else(|_| panic!("{line}"))
    })
}

fn place_of(text: &str) -> (usize, usize) {
    let (line, column) = text.split_once(':').unwrap();
    (line.parse().unwrap(), column.parse().unwrap())
}

fn accepted(policy: &str, tenants: &str) -> (Policy, Vec<Warning>) {
    read(policy, tenants).unwrap_or_else(|e| panic!("{policy}\n{tenants}\n{e}"))
}

fn rate(per_second: f64) -> Rate {
    Rate::new(per_second).unwrap()
}

fn bucket<'a>(policy: &'a Policy, name: &str) -> &'a BucketPolicy {
    policy.bucket(&Bucket::new(name).unwrap()).unwrap()
}

fn tenant<'a>(policy: &'a Policy, name: &str) -> &'a TenantPolicy {
    policy.tenant(&Tenant::new(name).unwrap())
}

#[test]
fn full_example_parses_to_its_values() {
    let (policy, _) = accepted(FULL_POLICY, FULL_TENANTS);
    assert!(!policy.kill_switch);
    assert!(policy.guardrails);

    let checkout = bucket(&policy, "checkout");
    assert_eq!(checkout.limit(), Limit::PerSecond(rate(1000.0)));
    assert_eq!(checkout.tenant_limit, Some(rate(200.0)));
    assert_eq!(checkout.candidate, Some(rate(900.0)));
    assert_eq!(checkout.mode, Mode::Enforce);
    assert_eq!(checkout.rollout.canary_percent.get(), 10.0);
    let [tickets, budget] = &checkout.rollout.queries[..] else {
        panic!("{checkout:?}")
    };
    assert_eq!(
        (tickets.name.as_str(), tickets.url.as_str()),
        ("support-tickets", "http://prometheus:9090")
    );
    assert_eq!(tickets.query, "sum(increase(tickets_total[1h]))");
    assert_eq!(
        (tickets.bound, budget.bound),
        (Bound::AtMost(20.0), Bound::AtLeast(0.1))
    );

    let learned = bucket(&policy, "learned");
    assert_eq!(learned.limit(), Limit::Unknown);
    let LimitSource::Learned(source) = &learned.source else {
        panic!("{learned:?}")
    };
    assert_eq!(
        (source.percentile, source.days, source.headroom),
        (95.0, 7, 1.2)
    );
    assert_eq!(
        (source.bounds.min(), source.bounds.max()),
        (Some(rate(200.0)), Some(rate(5000.0)))
    );
    assert_eq!(source.until_history, Some(rate(800.0)));

    let queried = bucket(&policy, "queried");
    assert_eq!(queried.limit(), Limit::Unknown);
    let LimitSource::Prometheus(source) = &queried.source else {
        panic!("{queried:?}")
    };
    assert_eq!(
        (source.url.as_str(), source.query.as_str()),
        ("http://prometheus:9090", "sum(rate(x[5m]))")
    );
    assert_eq!(
        (queried.release, queried.coin),
        (Release::Never, Coin::Coherent)
    );
    // A bucket's own rollout block overrides field by field, also inside the gates.
    assert_eq!(queried.rollout.canary_percent.get(), 50.0);
    assert_eq!(queried.rollout.shadow.window, Duration::from_secs(3600));
    assert_eq!(queried.rollout.shadow.min, Duration::from_secs(7 * 86_400));
    let names: Vec<&str> = queried
        .rollout
        .queries
        .iter()
        .map(|query| query.name.as_str())
        .collect();
    assert_eq!(
        names,
        ["own"],
        "a list of its own takes the place of the one for all"
    );

    assert_eq!(bucket(&policy, "free").limit(), Limit::Unlimited);
    assert_eq!(
        bucket(&policy, "api/users").limit(),
        Limit::PerSecond(rate(50_000.0))
    );
    let names: Vec<&str> = policy
        .exact_buckets()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["checkout", "free", "learned", "queried"]);
    assert_eq!(
        policy
            .patterns()
            .map(|(pattern, _)| pattern)
            .collect::<Vec<_>>(),
        ["api/*"]
    );

    let names: Vec<&str> = policy.tenants().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["default", "enterprise_acme", "free_tier"]);
    let acme = tenant(&policy, "enterprise_acme");
    assert_eq!((acme.weight.get(), acme.burst_multiplier.get()), (4.0, 3.0));
    assert_eq!(acme.notes.as_deref(), Some("Q2 contract"));
    assert!(policy.is_listed(&Tenant::new("free_tier").unwrap()));
    assert!(!policy.is_listed(&Tenant::new("stranger").unwrap()));
    assert_eq!(tenant(&policy, "stranger"), tenant(&policy, "default"));
    assert_eq!(policy.fairness().algorithm, Algorithm::DeficitRoundRobin);
    assert_eq!(policy.fairness().min_floor, rate(5.0));
}

#[test]
fn a_boost_holds_until_its_end() {
    let (policy, _) = accepted(FULL_POLICY, FULL_TENANTS);
    let tenant = tenant(&policy, "free_tier");
    let boost = tenant.boost.unwrap();
    assert_eq!((boost.factor, boost.until.as_secs()), (2.0, 1_796_083_200));
    assert_eq!(tenant.weight_at(1_796_083_199).get(), 0.5);
    assert_eq!(tenant.weight_at(1_796_083_200).get(), 0.25);
    assert_eq!(tenant.weight.get(), 0.25);
}

#[test]
fn absent_fields_have_their_defaults() {
    let (policy, warnings) = accepted("buckets: { b: { limit: 7 } }", "tenants: { default: {} }");
    assert_eq!(warnings, []);
    assert!(!policy.kill_switch);
    assert!(policy.guardrails);
    let bucket = bucket(&policy, "b");
    assert_eq!(bucket.mode, Mode::Shadow);
    assert_eq!((bucket.tenant_limit, bucket.candidate), (None, None));
    assert_eq!(bucket.burst, Duration::from_millis(250));
    assert_eq!(
        (bucket.release, bucket.coin),
        (Release::Auto, Coin::Dithered)
    );
    let rollout = &bucket.rollout;
    assert_eq!(
        (rollout.canary_percent.get(), rollout.auto_promote),
        (5.0, false)
    );
    assert_eq!((rollout.min_samples, rollout.require_gates), (1000, true));
    assert_eq!(rollout.queries[..], []);
    assert_eq!(rollout.shadow.min, Duration::from_secs(7 * 86_400));
    assert_eq!(rollout.shadow.window, Duration::from_secs(86_400));
    assert_eq!(rollout.shadow.max_drop_ratio, 0.005);
    assert_eq!(rollout.canary.min, Duration::from_secs(48 * 3600));
    assert_eq!(rollout.canary.window, Duration::from_secs(15 * 60));
    assert_eq!(rollout.canary.max_drop_ratio, 0.001);
    assert_eq!(rollout.canary.max_p99_delta, Duration::from_millis(5));
    let tenant = tenant(&policy, "anyone");
    assert_eq!(
        (tenant.weight.get(), tenant.burst_multiplier.get()),
        (1.0, 1.0)
    );
    assert_eq!((tenant.notes.as_deref(), tenant.boost), (None, None));
    assert_eq!(policy.fairness().reweight_interval, Duration::from_secs(5));
    assert_eq!(policy.fairness().min_floor, Rate::ZERO);

    let (policy, _) = accepted("buckets: {}", "{ tenants: { default: {} }, fairness: {} }");
    assert_eq!(policy.fairness().min_floor, rate(5.0));
    assert_eq!(policy.fairness().reweight_interval, Duration::from_secs(5));
    assert_eq!(policy.fairness().algorithm, Algorithm::DeficitRoundRobin);

    let (policy, _) = accepted(
        "buckets: { b: { limit: { learned: {} } } }",
        "tenants: { default: {} }",
    );
    let LimitSource::Learned(source) = &self::bucket(&policy, "b").source else {
        panic!("{policy:?}")
    };
    assert_eq!(
        (source.percentile, source.days, source.headroom),
        (95.0, 7, 1.2)
    );
    assert_eq!(
        (
            source.bounds.min(),
            source.bounds.max(),
            source.until_history
        ),
        (None, None, None)
    );
}

#[test]
fn limit_spellings_are_many() {
    for (text, limit) in [
        ("0", Limit::PerSecond(Rate::ZERO)),
        ("1000", Limit::PerSecond(rate(1000.0))),
        ("1e3", Limit::PerSecond(rate(1000.0))),
        ("0.5", Limit::PerSecond(rate(0.5))),
        ("1e12", Limit::PerSecond(Rate::MAX)),
        ("unlimited", Limit::Unlimited),
        ("\"unlimited\"", Limit::Unlimited),
        ("{ learned: { until_history: 800 } }", Limit::Unknown),
        (
            "{ prometheus: { url: https://p, query: up } }",
            Limit::Unknown,
        ),
    ] {
        let (policy, _) = accepted(
            &format!("buckets: {{ b: {{ limit: {text} }} }}"),
            ONE_CLASS_TENANTS,
        );
        assert_eq!(bucket(&policy, "b").limit(), limit, "{text}");
    }
}

#[test]
fn guardrails_accept_both_yaml_versions() {
    for (text, on) in [
        ("on", true),
        ("off", false),
        ("true", true),
        ("false", false),
        ("\"off\"", false),
    ] {
        let (policy, _) = accepted(
            &format!("{{ guardrails: {text}, buckets: {{}} }}"),
            ONE_CLASS_TENANTS,
        );
        assert_eq!(policy.guardrails, on, "{text}");
    }
}

#[test]
fn exact_name_beats_patterns_by_length() {
    let text = r#"
buckets:
  "*": { limit: 1 }
  "api/*": { limit: 2 }
  "api/users*": { limit: 3 }
  api/users: { limit: 4 }
"#;
    let (policy, _) = accepted(text, ONE_CLASS_TENANTS);
    for (name, limit) in [
        ("checkout", 1.0),
        ("api", 1.0),
        ("api/", 2.0),
        ("api/user", 2.0),
        ("api/users", 4.0),
        ("api/users2", 3.0),
        ("api/users/7", 3.0),
    ] {
        assert_eq!(
            bucket(&policy, name).limit(),
            Limit::PerSecond(rate(limit)),
            "{name}"
        );
    }
    let entry = |name: &str| policy.entry(&Bucket::new(name).unwrap());
    assert_eq!(entry("api/users").as_deref(), Some("api/users"));
    assert_eq!(entry("api/users2").as_deref(), Some("api/users*"));
    let (policy, _) = accepted("buckets: { \"api/*\": { limit: 2 } }", ONE_CLASS_TENANTS);
    assert_eq!(policy.bucket(&Bucket::new("ap").unwrap()), None);
    assert_eq!(policy.entry(&Bucket::new("ap").unwrap()), None);
    assert_eq!(policy.bucket(&Bucket::new("api").unwrap()), None);
}

#[test]
fn bucket_may_opt_out_of_extra_gates() {
    let query = "{ name: a, url: http://p, query: up, max: 1 }";
    let text = format!(
        "{{ buckets: {{ b: {{ limit: 1, rollout: {{ queries: [] }} }}, c: {{ limit: 1 }} }}, rollout: {{ queries: [ {query} ] }} }}"
    );
    let (policy, _) = accepted(&text, ONE_CLASS_TENANTS);
    assert_eq!(
        ["b", "c"].map(|name| bucket(&policy, name).rollout.queries.len()),
        [0, 1]
    );
    let most: Vec<String> = (0..QUERIES_MAX)
        .map(|at| query.replace("name: a", &format!("name: a{at}")))
        .collect();
    let text = format!(
        "{{ buckets: {{ b: {{ limit: 1 }} }}, rollout: {{ queries: [ {} ] }} }}",
        most.join(", ")
    );
    let (policy, _) = accepted(&text, ONE_CLASS_TENANTS);
    assert_eq!(bucket(&policy, "b").rollout.queries.len(), QUERIES_MAX);
}

#[test]
fn the_hash_depends_on_the_content() {
    let hash = |policy: &str, tenants: &str| accepted(policy, tenants).0.hash();
    let policy = "buckets: {}";
    assert_eq!(
        hash(policy, ONE_CLASS_TENANTS),
        hash(policy, ONE_CLASS_TENANTS)
    );
    assert_ne!(
        hash(policy, ONE_CLASS_TENANTS),
        hash("buckets: {} ", ONE_CLASS_TENANTS)
    );
    assert_ne!(
        hash(policy, ONE_CLASS_TENANTS),
        hash(policy, "tenants: { default: {} }")
    );
}

#[test]
fn only_surprising_values_give_warnings() {
    let said = |policy: &str, tenants: &str| -> Vec<String> {
        accepted(policy, tenants)
            .1
            .iter()
            .filter(|warning| warning.holds_at(0))
            .map(|warning| warning.path.clone())
            .collect()
    };
    assert!(said("buckets: { b: { limit: 1 } }", ONE_CLASS_TENANTS).is_empty());
    assert!(said(FULL_POLICY, FULL_TENANTS).is_empty());
    let quiet = "tenants: { default: { weight: 2 }, other: { weight: 2, burst_multiplier: 1, notes: same } }";
    for [buckets, rollout, paths] in rows(
        r#"
        { b: { limit: 1, coin: coherent, mode: enforce } } | |
        { b: { limit: 1, tenant_limit: 1, mode: canary, coin: dithered } } | |
        { b: { limit: 0, mode: enforce } } | | buckets.b.limit
        { b: { limit: 0, mode: shadow } } | |
        { b: { limit: 1 } } | , auto_promote: false |
        { b: { limit: 1 } } | , auto_promote: true |
        { b: { limit: { learned: { days: 90 } } } } | |
        { b: { limit: { learned: { days: 91 } } } } | | buckets.b.limit.learned.days
        { b: { limit: { prometheus: { url: http://p, query: up } } } } | |
        { b: { limit: { prometheus: { url: https://p, query: up } } } } | |
        { b: { limit: 1 } } | , queries: [ { name: a, url: http://p, query: up, max: 1 } ] |
        { b: { limit: 1 }, c: { limit: 1 } } | , queries: [ { name: a, url: http://p, query: up, max: 1 }, { name: b, url: https://p, query: up, max: 1 } ] |
        { b: { limit: 1, rollout: { queries: [ { name: a, url: https://p, query: up, max: 1 } ] } } } | |
        {} | | buckets
        "#,
    ) {
        let policy =
            format!("{{ buckets: {buckets}, rollout: {{ require_gates: false{rollout} }} }}");
        let paths: Vec<&str> = paths.split_whitespace().collect();
        assert_eq!(said(&policy, quiet), paths, "{policy}");
    }
    let zero =
        "buckets:\n  b:\n    limit: 0\n    mode: enforce\nrollout: { require_gates: false }\n";
    let (_, warnings) = accepted(zero, quiet);
    assert_eq!(
        warnings[0].to_string(),
        "policy.yaml:3:12: buckets.b.limit: a limit of 0 in mode enforce denies everything"
    );
}

fn warned(policy: &str, tenants: &str) -> Vec<String> {
    accepted(policy, tenants)
        .1
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn gates_that_can_never_pass_give_warnings() {
    let of = |buckets: &str, rollout: &str| {
        warned(
            &format!("buckets: {{ {buckets} }}\nrollout: {{ {rollout} }}\n"),
            ONE_CLASS_TENANTS,
        )
    };
    // The last three gates are not waited for.
    for [buckets, rollout, expected] in rows(
        r#"
        b: { limit: 100 } | |
        b: { limit: 100 }, c: { limit: 7 } | canary_percent: 100 | 2:28: rollout.canary_percent: enforce: a canary of 100 % has no control cohort to compare latency with; only a fleet that reports none passes
        b: { limit: 100, rollout: { canary_percent: 0 } } | | 1:56: buckets.b.rollout.canary_percent: enforce: a canary of 0 % has no canary cohort
        b: { limit: 100 } | shadow: { window_h: 0 }, canary: { window_min: 0 } | 2:32: rollout.shadow.window_h: canary: a window of 0 has no samples && 2:59: rollout.canary.window_min: enforce: a window of 0 has no samples
        b: { limit: 0 } | | 1:24: buckets.b.limit: canary: a limit of 0 refuses everything && 1:24: buckets.b.limit: enforce: a limit of 0 refuses everything
        b: { limit: 8, mode: canary }, c: { limit: 100 } | canary: { window_min: 1, max_drop_ratio: 0 }, min_samples: 601 | 1:24: buckets.b.limit: enforce: within the limit of 8 requests/s a window of 60 s has at most 600 samples of the 601 due
        b: { limit: 8 } | canary: { window_min: 1, max_drop_ratio: 0 }, min_samples: 600 |
        b: { limit: 8 } | canary: { window_min: 1, max_drop_ratio: 1 }, min_samples: 9000 |
        b: { limit: unlimited } | canary: { window_min: 1 }, min_samples: 9000 |
        b: { limit: 100 } | canary_percent: 100, require_gates: false |
        b: { limit: 100, mode: enforce } | canary_percent: 100 |
        b: { limit: 100, mode: canary } | shadow: { window_h: 0 } |
        "#,
    ) {
        let expected = expected.split(" && ").filter(|it| !it.is_empty());
        let expected = expected.map(|it| match it.splitn(4, ": ").collect::<Vec<_>>()[..] {
            [place, path, to, why] => {
                format!("policy.yaml:{place}: {path}: the gate to {to} can never pass: {why}")
            }
            _ => panic!("{it}"),
        });
        let expected: Vec<String> = expected.collect();
        assert_eq!(of(&buckets, &rollout), expected, "{buckets} with {rollout}");
    }
}

#[test]
fn floors_above_a_limit_give_a_warning() {
    let tenants = |fairness: &str| {
        format!("tenants: {{ default: {{}}, a: {{}}, b: {{}} }}\nfairness: {{ {fairness} }}\n")
    };
    let policy = "buckets: { b: { limit: 14 }, c: { limit: 15 }, 'd*': { limit: { learned: { max: 9 } } }, e: { limit: 0 } }";
    assert_eq!(
        warned(policy, &tenants("min_floor_rps: 5")).last().unwrap(),
        "tenants.yaml:2:28: fairness.min_floor_rps: 5 requests/s for each of 3 tenants is 15, above the limit of 9 of \
         d* and 1 more: if all of them ask, the floors are not met but divided by weight"
    );
    let floors = |policy: &str, fairness: &str| {
        warned(policy, &tenants(fairness))
            .iter()
            .any(|warning| warning.contains("floors"))
    };
    assert!(
        floors("buckets: { b: { limit: 14 } }", ""),
        "the floor of a block is 5 by default"
    );
    assert!(!floors(policy, "min_floor_rps: 3"));
}

#[test]
fn ended_boost_gives_a_warning() {
    let tenants = "tenants:\n  default: {}\n  a: { weight: 4, boost: 2, boost_until: 2026-12-01T00:00:00Z }\n";
    let (_, warnings) = accepted("buckets: { b: { limit: 1 } }", tenants);
    assert_eq!(
        warnings[0].to_string(),
        "tenants.yaml:3:42: tenants.a.boost_until: the boost has ended: the weight is 4"
    );
    assert_eq!(
        [1_796_083_199, 1_796_083_200].map(|at| warnings[0].holds_at(at)),
        [false, true]
    );
}

#[test]
fn large_policy_is_read_in_time() {
    let mut text = "buckets:\n".to_owned();
    let mut buckets = 0;
    while text.len() < FILE_BYTES_MAX / 4 {
        text.push_str(&format!(
            "  bucket-with-a-long-name-{buckets}: {{ limit: 1 }}\n"
        ));
        buckets += 1;
    }
    let (policy, _) = accepted(&text, ONE_CLASS_TENANTS);
    assert_eq!(policy.exact_buckets().count(), buckets);
    let mut text = "buckets: {}\n".to_owned();
    text.push_str(&" ".repeat(FILE_BYTES_MAX - text.len()));
    assert!(read(&text, ONE_CLASS_TENANTS).is_ok());
    text.push(' ');
    assert!(read(&text, ONE_CLASS_TENANTS).is_err());
}
