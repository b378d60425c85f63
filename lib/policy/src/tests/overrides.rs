//! Quotas of single tenants and plans by example: precedence, faults with their places, and their room.

use super::*;
use plimsoll_core::quota::OVERRIDES_BYTES_MAX;

const POLICY: &str = r#"quotas:
  api_calls: { max: 10000, every: 1h, lease: 100 }
  pages: { max: 500, refill: 50, every: 1m }
  total: { max: 9, every: 1h, key: global }
buckets:
  checkout: { limit: 100, quotas: [pages, api_calls] }
  "api/*": { limit: 100, quotas: [api_calls] }
  all: { limit: 100, quotas: [total] }
"#;
const TENANTS: &str = "
plans:
  free: { limits: { checkout: 10 }, quotas: { api_calls: { max: 1000 }, pages: { max: 60 } } }
  enterprise: { quotas: { api_calls: { max: 20000, refill: 500 } } }
  basic: {}
tenants:
  default: {}
  acme: { plan: enterprise, quotas: { api_calls: { max: 50000 } } }
  globex: { plan: enterprise }
  tiny: { plan: free, quotas: { api_calls: { max: 40 } } }
  plain: {}
";

/// The size and refill, and the lease, of a tenant's quota in a bucket.
fn of(policy: &Policy, name: &str, [tenant, plan]: [&str; 2]) -> [[u64; 3]; 2] {
    let quotas = bucket(policy, name).quotas.clone();
    let quotas = quotas.of_tenant(tenant, plan);
    ["api_calls", "pages"].map(|name| {
        let quota = quotas.iter().find(|quota| quota.name.as_str() == name);
        quota.map_or([0; 3], |quota| {
            [quota.rate.max(), quota.rate.refill(), quota.lease()]
        })
    })
}

#[test]
fn quota_is_of_tenant_plan_or_definition() {
    let policy = accepted(POLICY, TENANTS).0;
    let own = [10_000, 10_000, 100];
    let pages = [500, 50, 1];
    for (tenant, plan, api_calls, of_pages) in [
        ("acme", "enterprise", [50_000, 50_000, 100], pages),
        ("acme", "free", [50_000, 50_000, 100], pages),
        ("globex", "", [20_000, 500, 100], pages),
        ("tiny", "free", [40, 40, 40], [60, 50, 1]),
        ("plain", "free", own, pages),
        ("unlisted", "free", [1_000, 1_000, 100], [60, 50, 1]),
        ("unlisted", "enterprise", [20_000, 500, 100], pages),
        ("unlisted", "basic", own, pages),
        ("unlisted", "", own, pages),
    ] {
        let expected = [api_calls, of_pages];
        assert_eq!(
            of(&policy, "checkout", [tenant, plan]),
            expected,
            "{tenant} {plan}"
        );
        let [found, _] = of(&policy, "api/users", [tenant, plan]);
        assert_eq!(found, api_calls, "{tenant} {plan}");
    }
    // A plan that the policy has is not `default`.
    let tenants = "
plans: { default: { quotas: { pages: { max: 7 } } }, basic: {} }
tenants: { plain: {} }
";
    let policy = accepted(POLICY, tenants).0;
    for (tenant, plan, max) in [
        ("unlisted", "", 7),
        ("unlisted", "gone", 7),
        ("unlisted", "basic", 500),
        ("plain", "", 500),
    ] {
        let [_, found] = of(&policy, "checkout", [tenant, plan]);
        assert_eq!(found[0], max, "{tenant} {plan}");
    }
    let only_tenants =
        "tenants: { default: {}, plain: {}, acme: { quotas: { pages: { max: 7 } } } }";
    let policy = accepted(POLICY, only_tenants).0;
    let overridden = policy.quota("pages").unwrap().overrides();
    assert_eq!(overridden.len(), 1, "entries without numbers need none");
}

#[test]
fn wrong_overrides_are_refused_with_their_place() {
    for (quotas, column, path, words) in [
        (
            "api_call: { max: 1 }",
            18,
            "api_call",
            "did you mean `api_calls`",
        ),
        ("other: { max: 1 }", 18, "other", "define it under"),
        ("total: { max: 1 }", 18, "total", "counts all tenants"),
        ("pages: { max: 0 }", 32, "pages.max", "from 1 on"),
        (
            "pages: { max: 5, refill: 0 }",
            43,
            "pages.refill",
            "from 1 on",
        ),
        ("pages: { refill: 5 }", 18, "pages.max", "missing"),
        (
            "pages: { max: 5, every: 1h }",
            35,
            "pages.every",
            "unknown field",
        ),
    ] {
        for (text, of) in [
            ("tenants: { default: {} }\nplans:\n  a: { ", "plans.a"),
            ("tenants:\n  default: {}\n  a: { ", "tenants.a"),
        ] {
            let text = format!("{text}quotas: {{ {quotas} }} }}");
            let error = read(POLICY, &text).map(drop).expect_err(&text);
            let [fault] = error.faults() else {
                panic!("{error}")
            };
            assert_eq!(
                (fault.path.as_str(), fault.file.as_str(), fault.place),
                (
                    &*format!("{of}.quotas.{path}"),
                    "tenants.yaml",
                    SourcePlace { line: 3, column }
                ),
                "{fault}"
            );
            let said = format!("{} {}", fault.message, fault.hint);
            assert!(said.contains(words), "{fault}");
        }
    }
    // Definitions with faults are reported once, and not at each tenant.
    let faulty = "quotas: { q: { max: 0, every: 1h } }\nbuckets: {}\n";
    let tenants = "tenants: { default: { quotas: { q: { max: 1 } } } }\n";
    let error = read(faulty, tenants).map(drop).expect_err(faulty);
    assert_eq!(error.faults().len(), 1, "{error}");
}

#[test]
fn overrides_have_room_for_thousands_of_names() {
    let tenants = |count: usize| {
        let each = |at: usize| {
            format!(
                "  t{at:05}: {{ quotas: {{ pages: {{ max: {} }} }} }}\n",
                at + 1
            )
        };
        let entries: String = (0..count).map(each).collect();
        format!("tenants:\n  default: {{}}\n{entries}")
    };
    let policy = accepted(POLICY, &tenants(TENANTS_MAX - 1)).0;
    assert_eq!(of(&policy, "checkout", ["t04998", ""])[1][0], 4_999);
    // Two quotas of one bucket with an entry for each tenant.
    let of_plan = "plans: { free: { quotas: { api_calls: { max: 1 } } } }\n";
    let error = read(POLICY, &(of_plan.to_owned() + &tenants(4_900))).unwrap_err();
    let fault = &error.faults()[0];
    assert!(
        fault.message.contains(&OVERRIDES_BYTES_MAX.to_string()) && fault.hint.contains("plans"),
        "{fault}"
    );
}
