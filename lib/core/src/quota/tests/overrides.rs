//! The rate of a request by its tenant and plan.

use std::sync::Arc;

use super::super::*;
use crate::names::Tenant;

fn quota(key: QuotaKey) -> Quota {
    let rate = QuotaRate::new(100, 100, 1_000).unwrap();
    Quota::new("q".parse().unwrap(), rate, key, OnStoreError::Deny, 50).unwrap()
}

fn rates<'a>(of: &'a [(&str, u64)]) -> impl Iterator<Item = (Tenant, QuotaRate)> + 'a {
    of.iter().map(|(entry, max)| {
        let rate = QuotaRate::new(*max, *max, 1_000).unwrap();
        (Tenant::new(entry).unwrap(), rate)
    })
}

#[test]
fn own_entry_counts_before_plan_and_default() {
    let of_plans = [("acme", 5_000), ("%~free", 10)];
    let all = [("acme", 5_000), ("%~free", 10), ("default", 20)];
    for (overrides, tenant, plan, max) in [
        (&all[..0], "acme", "free", 100),
        (&of_plans, "acme", "free", 5_000),
        (&of_plans, "acme", "", 5_000),
        (&of_plans, "jo", "free", 10),
        (&of_plans, "default", "free", 10),
        (&of_plans, "jo", "", 100),
        (&of_plans, "jo", "gone", 100),
        (&of_plans, "jo", "no plan", 100),
        (&all, "jo", "gone", 20),
        (&all, "default", "", 20),
        (&all, "default", "free", 10),
    ] {
        let quota = quota(QuotaKey::Tenant);
        let quota = Arc::new(quota.with_overrides(rates(overrides)).unwrap());
        let found = BucketQuotas::new(vec![quota]).unwrap();
        let found = found.of_tenant(tenant, plan);
        assert_eq!(found[0].rate.max(), max, "{tenant} in plan {plan:?}");
        assert_eq!(found[0].lease(), max.min(50), "a lease is at most max");
    }
}

#[test]
fn quotas_without_overrides_keep_their_identity() {
    let quotas = BucketQuotas::new(vec![Arc::new(quota(QuotaKey::Tenant))]).unwrap();
    let found = quotas.clone().of_tenant("acme", "free");
    assert!(std::ptr::eq(&*quotas, &*found));
}

#[test]
fn overrides_are_bounded_and_of_tenants() {
    let global = quota(QuotaKey::Global);
    assert_eq!(
        global.with_overrides(rates(&[("acme", 1)])),
        Err(InvalidQuota::GlobalOverride)
    );
    let attached = |count: usize| {
        let names: Vec<String> = (0..count).map(|at| format!("{at:0>102}")).collect();
        let of: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
        let quota = quota(QuotaKey::Tenant).with_overrides(rates(&of)).unwrap();
        BucketQuotas::new(vec![Arc::new(quota)]).map(drop)
    };
    let most = OVERRIDES_BYTES_MAX / 128;
    assert_eq!(attached(most), Ok(()));
    let beyond = InvalidBucketQuotas::Overrides(OVERRIDES_BYTES_MAX + 128);
    assert_eq!(attached(most + 1), Err(beyond));
}
