//! Plans by example: the order of precedence, classes, and faults.

use super::*;
use plimsoll_core::directive::LimitOwner;
use plimsoll_core::names::{Bucket, Tenant};

const BUCKETS: &str = r#"buckets: { checkout: { limit: 100, tenant_limit: 20 }, "api/*": { limit: 50 }, other: { limit: 9 } }"#;
const PLANS: &str = r#"
plans:
  free: { weight: 0.25, floor_rps: 1, limits: { checkout: 10, "api/*": 5 } }
  enterprise: { weight: 4, burst_multiplier: 2 }
tenants:
  default: {}
  acme: { plan: enterprise, limits: { checkout: 5000 } }
  tiny: { plan: free, weight: 0.5, floor_rps: 2 }
  plain: {}
fairness: { min_floor_rps: 3 }
"#;

fn named(name: &str) -> Tenant {
    Tenant::new(name).unwrap()
}

#[test]
fn limit_is_of_tenant_plan_or_bucket() {
    let policy = accepted(BUCKETS, PLANS).0;
    let (tenant, plan, bucket) = (LimitOwner::Tenant, LimitOwner::Plan, LimitOwner::Bucket);
    for (name, of, expected) in [
        ("acme", "checkout", Some((5000.0, tenant))),
        ("acme", "api/users", None),
        ("tiny", "checkout", Some((10.0, plan))),
        ("tiny", "api/users", Some((5.0, plan))),
        ("tiny", "other", None),
        ("plain", "checkout", Some((20.0, bucket))),
        ("unlisted", "checkout", Some((20.0, bucket))),
        ("unlisted%~free", "checkout", Some((10.0, plan))),
        ("%~free", "api/users", Some((5.0, plan))),
        ("acme%~free", "checkout", Some((5000.0, tenant))),
        ("unlisted%~gone", "checkout", Some((20.0, bucket))),
    ] {
        let found = policy.tenant_limit(&named(name), &Bucket::new(of).unwrap());
        let found = found.map(|(rate, owner)| (rate.per_second(), owner));
        assert_eq!(found, expected, "{name} in {of}");
    }
}

#[test]
fn absent_values_are_those_of_the_plan() {
    let policy = accepted(BUCKETS, PLANS).0;
    for (name, weight, burst, floor) in [
        ("acme", 4.0, 2.0, 3.0),
        ("tiny", 0.5, 1.0, 2.0),
        ("unlisted%~free", 0.25, 1.0, 1.0),
        ("plain", 1.0, 1.0, 3.0),
    ] {
        let tenant = policy.tenant(&named(name));
        assert_eq!(
            (tenant.weight.get(), tenant.burst_multiplier.get()),
            (weight, burst),
            "{name}"
        );
        assert_eq!(policy.floor(&named(name)).per_second(), floor, "{name}");
    }
    let classes: Vec<_> = policy
        .tenants()
        .map(|(name, _)| name.as_str())
        .filter(|name| plimsoll_core::names::is_class(name))
        .collect();
    assert_eq!(classes, ["%~enterprise", "%~free", "default"]);
}

#[test]
fn default_class_may_be_a_plan() {
    let tenants = "plans: { default: { limits: { checkout: 7 } } }\n";
    let policy = accepted(BUCKETS, tenants).0;
    let limit = policy.tenant_limit(&named("anyone"), &Bucket::new("checkout").unwrap());
    assert_eq!(limit, Some((rate(7.0), LimitOwner::Plan)));
}
