//! Leases of tokens, and the definitions of quotas.

use proptest::prelude::*;

use super::*;
use crate::names::Name;

#[test]
fn lease_is_bounded_by_a_quarter() {
    for (balance, least, wanted, taken) in [
        (0, 1, 1, 0),
        (0, 0, 100, 0),
        (1, 1, 100, 1),
        (4, 1, 100, 1),
        (5, 1, 100, 2),
        (100, 1, 10, 10),
        (100, 1, 100, 25),
        (100, 100, 100, 100),
        (99, 100, 100, 0),
        (100, 5, 3, 5),
        (100, 0, 100, 25),
        (u64::MAX, u64::MAX, u64::MAX, u64::MAX),
        (u64::MAX, 0, u64::MAX, u64::MAX / 4),
    ] {
        assert_eq!(
            lease(balance, least, wanted),
            taken,
            "{least} to {wanted} of {balance}"
        );
    }
}

fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![0..20_u64, 0..2_000_u64, any::<u64>(), Just(u64::MAX)]
}

proptest! {
    #[test]
    fn lease_is_covered_by_the_balance(
        balance in any_number(),
        more in any_number(),
        least in any_number(),
        wanted in any_number(),
    ) {
        let taken = lease(balance, least, wanted);
        prop_assert!(taken <= balance && taken <= wanted.max(least));
        prop_assert_eq!(taken == 0, balance < least || taken == least && least == 0);
        prop_assert!(taken == 0 || taken >= least);
        prop_assert!(lease(balance.saturating_add(more), least, wanted) >= taken);
        prop_assert!(lease(balance, least, wanted.saturating_add(more)) >= taken);
    }
}

#[test]
fn lease_bounds_admission_without_a_store() {
    let quota = |max, lease| {
        Quota::new(
            Name::new("api_calls").unwrap(),
            rate(max, 1, 1_000),
            QuotaKey::Tenant,
            OnStoreError::default(),
            lease,
        )
    };
    for (max, lease) in [(10, 0), (10, 11), (u64::MAX >> 1, LEASE_MAX + 1)] {
        assert_eq!(
            quota(max, lease),
            Err(InvalidQuota::Lease),
            "{lease} of {max}"
        );
    }
    for (max, lease, bounded) in [
        (1, 1, 1),
        (10_000, 100, 100),
        (10_000, 1, 100),
        (99, 1, 1),
        (LEASE_MAX, LEASE_MAX, LEASE_MAX),
    ] {
        let quota = quota(max, lease).unwrap();
        assert_eq!(
            (quota.lease(), quota.bounded()),
            (lease, bounded),
            "{lease} of {max}"
        );
    }
}
