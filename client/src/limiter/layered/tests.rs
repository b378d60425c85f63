//! The layered decision over a store in memory: what is asked, in which order, and how it is counted.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::decision::Reason;
use plimsoll_core::names::Name;
use plimsoll_core::quota::{OnStoreError, Quota, QuotaKey, QuotaRate};
use plimsoll_core::report::Counts;

use super::QuotaTally;
use crate::testing::ControlPlane;
use crate::{Decided, KeyRequest, Limiter, Verdict};

const HOUR: Duration = Duration::from_secs(3_600);

fn quota(name: &str, max: u64, policy: OnStoreError, lease: u64) -> Quota {
    let rate = QuotaRate::new(max, max, 3_600_000).unwrap();
    Quota::new(Name::new(name).unwrap(), rate, QuotaKey::Tenant, policy, lease).unwrap()
}

/// A bucket `api` with an hourly quota of `max` for each tenant, and the bucket `free` without one.
fn plane(max: u64) -> ControlPlane {
    let plane = ControlPlane::new(7);
    plane.quota("api", max, HOUR).unwrap();
    plane.admit("free").unwrap();
    plane
}

fn request<'a>(bucket: &'a str, tenant: &'a str, cost: u32) -> KeyRequest<'a> {
    KeyRequest { bucket, tenant, cost }
}

async fn ask(limiter: &Limiter, tenant: &str) -> Decided {
    limiter.decide_with_quotas(request("api", tenant, 1), None).await
}

async fn together(limiter: &Limiter, requests: &[KeyRequest<'_>]) -> Vec<Decided> {
    let mut decided = vec![Decided::ADMITTED; 9];
    limiter.decide_together_with_quotas(requests, None, &mut decided).await;
    decided
}

fn reason(decided: &Decided) -> Option<Reason> {
    match decided.verdict {
        Verdict::Admit => None,
        Verdict::Refuse(refusal) => Some(refusal.reason()),
    }
}

fn counts(limiter: &Limiter, bucket: &str, tenant: &str) -> Counts {
    let counts = limiter.bucket(bucket).unwrap().key(tenant).counts();
    assert!(counts.is_consistent(), "{counts:?}");
    counts
}

fn tally(limiter: &Limiter, bucket: &str) -> QuotaTally {
    limiter.table.layered.tally(limiter.bucket(bucket).unwrap().place.bucket)
}

#[tokio::test]
async fn quota_refuses_until_its_reset_and_then_from_memory_before_the_coin() {
    let plane = plane(3);
    let limiter = plane.limiter();
    for _ in 0..3 {
        assert_eq!(ask(&limiter, "acme").await, Decided::ADMITTED);
    }
    plane.advance(HOUR / 4);
    for _ in 0..100 {
        let decided = ask(&limiter, "acme").await;
        let Verdict::Refuse(refusal) = decided.verdict else { panic!("admitted") };
        assert_eq!((refusal.reason(), refusal.retry_after()), (Reason::TenantQuotaExceeded, HOUR * 3 / 4));
        assert_eq!(decided.quota.unwrap().name.as_str(), "api");
    }
    assert_eq!(plane.quota_requests(), 4, "the store was asked once after the quota was used up");
    let due = Counts { offered: 4, quota_dropped: 1, quota_repeated: 99, ..Counts::ZERO };
    assert_eq!(counts(&limiter, "api", "acme"), due);
    assert_eq!(due.admitted(), 3);
    assert_eq!(tally(&limiter, "api"), QuotaTally { exceeded: 1, repeated: 99, ..QuotaTally::default() });
    assert_eq!(ask(&limiter, "globex").await, Decided::ADMITTED, "another tenant");
    plane.advance(HOUR);
    assert_eq!(ask(&limiter, "acme").await, Decided::ADMITTED, "after the reset");
}

#[tokio::test]
async fn request_that_the_coin_refuses_is_not_asked_and_takes_no_token() {
    let plane = plane(1);
    plane.refuse("api", Reason::ClusterOverload).unwrap();
    let limiter = plane.limiter();
    for _ in 0..5 {
        assert_eq!(reason(&ask(&limiter, "acme").await), Some(Reason::ClusterOverload));
    }
    assert_eq!(plane.quota_requests(), 0);
    assert_eq!(counts(&limiter, "api", "acme"), Counts { offered: 5, dropped: 5, ..Counts::ZERO });
    plane.admit("api").unwrap();
    assert_eq!(ask(&limiter, "acme").await, Decided::ADMITTED);
}

#[tokio::test]
async fn shadow_and_kill_debit_admit_and_count() {
    for is_killed in [false, true] {
        let plane = plane(2);
        let withhold = |yes| if is_killed { plane.kill(yes) } else { plane.shadow("api", yes).unwrap() };
        withhold(true);
        let limiter = plane.limiter();
        let mut withheld = Vec::new();
        for _ in 0..5 {
            let decided = ask(&limiter, "acme").await;
            assert!(decided.verdict.is_admit());
            withheld.push(decided.withheld);
        }
        let exceeded = Some(Reason::TenantQuotaExceeded);
        assert_eq!(withheld, [None, None, exceeded, exceeded, exceeded]);
        assert_eq!(plane.quota_requests(), 3, "a refusal that is remembered is not asked for");
        let due = Counts { offered: 5, would_quota_dropped: 3, ..Counts::ZERO };
        assert_eq!(counts(&limiter, "api", "acme"), due);
        assert_eq!(tally(&limiter, "api").would_exceeded, 3);
        withhold(false);
        assert_eq!(reason(&ask(&limiter, "acme").await), exceeded, "what was served was debited");
    }
}

#[tokio::test]
async fn refusal_of_the_coin_that_is_withheld_is_debited_and_is_none_of_the_quota() {
    let plane = plane(2);
    plane.refuse("api", Reason::ClusterOverload).unwrap();
    plane.shadow("api", true).unwrap();
    let limiter = plane.limiter();
    for _ in 0..5 {
        assert_eq!(ask(&limiter, "acme").await.withheld, Some(Reason::ClusterOverload));
    }
    assert_eq!(counts(&limiter, "api", "acme"), Counts { offered: 5, would_dropped: 5, ..Counts::ZERO });
    plane.admit("api").unwrap();
    plane.shadow("api", false).unwrap();
    assert_eq!(reason(&ask(&limiter, "acme").await), Some(Reason::TenantQuotaExceeded));
}

#[tokio::test]
async fn store_that_fails_leaves_the_policy_of_the_quota() {
    for (policy, admitted) in
        [(OnStoreError::Allow, 500), (OnStoreError::Deny, 0), (OnStoreError::AllowBounded, 10)]
    {
        let plane = ControlPlane::new(7);
        plane.quotas("api", vec![quota("calls", 1_000, policy, 1)]).unwrap();
        plane.fail_quota_store(true);
        let limiter = plane.limiter();
        let mut found = 0;
        for _ in 0..500 {
            match reason(&ask(&limiter, "acme").await) {
                None => found += 1,
                other => assert_eq!(other, Some(Reason::QuotaDegraded)),
            }
        }
        assert_eq!(found, admitted, "{policy:?}");
        let due = Counts { offered: 500, quota_dropped: 500 - admitted, ..Counts::ZERO };
        assert_eq!(counts(&limiter, "api", "acme"), due);
        assert_eq!(tally(&limiter, "api").degraded, 500 - admitted);
        plane.fail_quota_store(false);
        assert_eq!(ask(&limiter, "acme").await, Decided::ADMITTED);
    }
}

#[tokio::test]
async fn cost_is_taken_as_a_whole_and_a_check_takes_nothing() {
    let plane = plane(10);
    let limiter = plane.limiter();
    let ask = async |cost| limiter.decide_with_quotas(request("api", "acme", cost), None).await;
    assert_eq!(ask(7).await, Decided::ADMITTED);
    assert_eq!(reason(&ask(4).await), Some(Reason::TenantQuotaExceeded));
    assert_eq!(ask(0).await, Decided::ADMITTED, "the refusal was that of a larger cost");
    assert_eq!(ask(3).await, Decided::ADMITTED);
    assert_eq!(reason(&ask(1).await), Some(Reason::TenantQuotaExceeded));
    assert_eq!(reason(&ask(0).await), Some(Reason::TenantQuotaExceeded));
    let due = Counts { offered: 15, quota_dropped: 5, ..Counts::ZERO };
    assert_eq!(counts(&limiter, "api", "acme"), due);
}

#[tokio::test]
async fn handles_ask_the_quotas_and_synchronous_decisions_do_not() {
    let plane = plane(2);
    let api = plane.limiter().bucket("api").unwrap();
    assert!(api.admit_with_quotas("acme").await.is_admit());
    assert!(api.key("acme").admit_with_quotas().await.is_admit());
    assert!(!api.admit_n_with_quotas("acme", 1).await.is_admit());
    assert!(api.admit("acme").is_admit() && api.key("acme").admit().is_admit());
    for tenant in ["auth0|1a", "auth0|1b", "default"] {
        assert!(
            api.admit_with_quotas(tenant).await.is_admit()
                && api.key(tenant).admit_with_quotas().await.is_admit()
        );
    }
    assert!(!api.admit_with_quotas("auth0|1a").await.is_admit(), "by a handle or by name, it is one tenant");
    assert!(!api.admit_with_quotas("").await.is_admit(), "empty names share the quota of the default class");
}

#[tokio::test]
async fn tenant_without_room_in_the_table_has_a_quota_of_its_own() {
    let plane = plane(1);
    let api = plane.limiter().bucket("api").unwrap();
    for tenant in 0..2 * crate::testing::KEYS_MAX {
        assert!(api.admit_with_quotas(&format!("t{tenant}")).await.is_admit(), "{tenant}");
    }
    let last = format!("t{}", 2 * crate::testing::KEYS_MAX - 1);
    assert!(!api.admit_with_quotas(&last).await.is_admit());
    assert!(!api.key(&last).admit_with_quotas().await.is_admit());
}

#[tokio::test]
async fn several_keys_are_debited_together_or_not_at_all() {
    let plane = plane(3);
    plane.quota("other", 1, HOUR).unwrap();
    let limiter = plane.limiter();
    let keys = [request("free", "acme", 1), request("api", "acme", 1), request("other", "acme", 1)];
    assert!(together(&limiter, &keys).await.iter().all(|decided| *decided == Decided::ADMITTED));
    let decided = together(&limiter, &keys).await;
    let reasons: Vec<_> = decided.iter().map(reason).collect();
    assert_eq!(reasons, [None, None, Some(Reason::TenantQuotaExceeded)]);
    // The refused request counts so for all of its keys.
    let due = Counts { offered: 2, quota_dropped: 1, ..Counts::ZERO };
    for bucket in ["free", "api", "other"] {
        assert_eq!(counts(&limiter, bucket, "acme"), due, "{bucket}");
    }
    assert_eq!(reason(&together(&limiter, &keys).await[2]), Some(Reason::TenantQuotaExceeded));
    assert_eq!(counts(&limiter, "other", "acme"), Counts { quota_repeated: 1, ..due });
    assert_eq!(counts(&limiter, "api", "acme"), due, "a request that is refused from memory is not offered");
    for left in [true, true, false] {
        assert_eq!(ask(&limiter, "acme").await.verdict.is_admit(), left);
    }
}

#[tokio::test]
async fn key_in_shadow_is_debited_by_itself_and_refuses_nothing() {
    let plane = plane(3);
    plane.quota("watched", 1, HOUR).unwrap();
    plane.shadow("watched", true).unwrap();
    let limiter = plane.limiter();
    let keys = [request("watched", "acme", 1), request("api", "acme", 1)];
    for (watched, api) in [
        (None, None),
        (Some(Reason::TenantQuotaExceeded), None),
        (Some(Reason::TenantQuotaExceeded), None),
        (None, Some(Reason::TenantQuotaExceeded)),
    ] {
        let decided = together(&limiter, &keys).await;
        assert_eq!((decided[0].withheld, reason(&decided[0]), reason(&decided[1])), (watched, None, api));
    }
    let due = Counts { offered: 4, would_quota_dropped: 2, quota_dropped: 1, ..Counts::ZERO };
    assert_eq!(counts(&limiter, "watched", "acme"), due);
    assert_eq!(counts(&limiter, "api", "acme"), Counts { offered: 4, quota_dropped: 1, ..Counts::ZERO });
}

#[tokio::test]
async fn one_key_and_keys_without_quotas_are_decided_as_without_them() {
    let plane = plane(1);
    let limiter = plane.limiter();
    assert_eq!(together(&limiter, &[request("api", "acme", 1)]).await, [Decided::ADMITTED]);
    assert_eq!(
        reason(&together(&limiter, &[request("api", "acme", 1)]).await[0]),
        Some(Reason::TenantQuotaExceeded)
    );
    let keys = [request("free", "acme", 1), request("free", "globex", 1)];
    assert_eq!(together(&limiter, &keys).await, [Decided::ADMITTED, Decided::ADMITTED]);
    assert!(together(&limiter, &[]).await.is_empty());
    assert_eq!(plane.quota_requests(), 2);
}

#[tokio::test]
async fn cancelled_request_is_spent_and_counts_as_admitted() {
    let plane = plane(1);
    let limiter = plane.limiter();
    plane.hold_quota_store(true);
    drop(limiter.decide_with_quotas(request("api", "globex", 1), None));
    plane.hold_quota_store(false);
    assert_eq!(counts(&limiter, "api", "globex"), Counts { offered: 1, ..Counts::ZERO });
    assert_eq!(reason(&ask(&limiter, "globex").await), Some(Reason::TenantQuotaExceeded));
}

#[tokio::test]
async fn quotas_without_a_store_are_not_enforced() {
    let (limiter, _feed) = Limiter::builder("shop").unwrap().build().unwrap();
    let api = limiter.bucket("api").unwrap();
    let quotas =
        plimsoll_core::quota::BucketQuotas::new(vec![Arc::new(quota("calls", 1, OnStoreError::Deny, 1))]);
    limiter.table.quotas.set(api.place.bucket, Some(&quotas.unwrap()));
    assert!(!limiter.has_quotas("api"));
    for _ in 0..5 {
        assert!(api.admit_with_quotas("acme").await.is_admit());
    }
    assert_eq!(counts(&limiter, "api", "acme"), Counts { offered: 5, ..Counts::ZERO });
}

#[tokio::test]
async fn keys_whose_refusals_are_not_carried_out_wait_for_the_store_together() {
    let plane = plane(2);
    plane.quota("web", 2, HOUR).unwrap();
    for bucket in ["api", "web"] {
        plane.shadow(bucket, true).unwrap();
    }
    let limiter = plane.limiter();
    plane.hold_quota_store(true);
    let keys = [request("api", "acme", 1), request("web", "acme", 1)];
    let mut decided = Vec::new();
    {
        let mut deciding = std::pin::pin!(limiter.decide_together_with_quotas(&keys, None, &mut decided));
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(deciding.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        assert_eq!(plane.quota_requests(), 2, "neither waits for the answer of the other");
        plane.hold_quota_store(false);
        deciding.await;
    }
    assert_eq!(decided, [Decided::ADMITTED, Decided::ADMITTED]);
}
