//! The layered decision over a store in memory: questions to the store, their order, and the
//! counts.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::decision::Reason;
use plimsoll_core::names::{Name, Tenant};
use plimsoll_core::quota::{OnStoreError, Quota, QuotaKey, QuotaRate};
use plimsoll_core::report::Counts;

use crate::internals::Decided;
use crate::testing::ControlPlane;
use crate::{Limiter, Request, SetupProblem, Verdict};

const HOUR: Duration = Duration::from_secs(3_600);

fn quota(name: &str, max: u64, policy: OnStoreError, lease: u64) -> Quota {
    let rate = QuotaRate::new(max, max, 3_600_000).unwrap();
    Quota::new(
        Name::new(name).unwrap(),
        rate,
        QuotaKey::Tenant,
        policy,
        lease,
    )
    .unwrap()
}

fn plane(max: u64) -> ControlPlane {
    let plane = ControlPlane::new(7);
    plane.quota("api", max, HOUR).unwrap();
    plane.admit("free").unwrap();
    plane
}

fn request<'a>(bucket: &'a str, tenant: &'a str, cost: u32) -> Request<'a> {
    Request::new(bucket, tenant).cost(cost)
}

async fn ask(limiter: &Limiter, tenant: &str) -> Decided {
    limiter.explain(&request("api", tenant, 1)).await
}

async fn together(limiter: &Limiter, requests: &[Request<'_>]) -> Vec<Decided> {
    limiter
        .explain_each(&Request::all(requests))
        .await
        .into_vec()
}

async fn admits(limiter: &Limiter, request: &Request<'_>) -> bool {
    limiter.check_async(request).await.is_admit()
}

fn offered(offered: u64) -> Counts {
    Counts {
        offered,
        ..Counts::ZERO
    }
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

fn tally(limiter: &Limiter, bucket: &str) -> [u64; 5] {
    limiter
        .table
        .layered
        .tally(limiter.bucket(bucket).unwrap().place.bucket)
}

#[tokio::test]
async fn key_that_refuses_is_named_behind_an_invalid_bucket() {
    let plane = plane(1);
    let limiter = plane.limiter();
    let asked = [request("no name", "acme", 1), request("api", "acme", 1)];
    for expected in [(1, true), (1, false)] {
        let Err(deciding) = limiter.decide_together(&asked, None, true) else {
            panic!("the store is asked");
        };
        let (at, decided) = deciding.await;
        assert_eq!((at, decided.verdict.is_admit()), expected);
    }
}

#[tokio::test]
async fn used_up_quota_refuses_until_its_reset() {
    let plane = plane(3);
    let limiter = plane.limiter();
    for _ in 0..3 {
        assert_eq!(ask(&limiter, "acme").await, Decided::ADMITTED);
    }
    plane.advance(HOUR / 4);
    for _ in 0..100 {
        let decided = ask(&limiter, "acme").await;
        let Verdict::Refuse(refusal) = decided.verdict else {
            panic!("admitted")
        };
        assert_eq!(
            (refusal.reason(), refusal.retry_after()),
            (Reason::TenantQuotaExceeded, HOUR * 3 / 4)
        );
        assert_eq!(decided.quota.unwrap().name.as_str(), "api");
    }
    assert_eq!(
        plane.quota_requests(),
        4,
        "the store was asked once after the quota was used up"
    );
    let due = Counts {
        offered: 4,
        quota_dropped: 1,
        quota_repeated: 99,
        ..Counts::ZERO
    };
    assert_eq!(counts(&limiter, "api", "acme"), due);
    assert_eq!(due.admitted(), 3);
    assert_eq!(tally(&limiter, "api"), [1, 0, 0, 0, 99]);
    assert_eq!(
        ask(&limiter, "globex").await,
        Decided::ADMITTED,
        "another tenant"
    );
    plane.advance(HOUR);
    assert_eq!(
        ask(&limiter, "acme").await,
        Decided::ADMITTED,
        "after the reset"
    );
}

#[tokio::test]
async fn coin_refusal_takes_no_quota_token() {
    let plane = plane(1);
    plane.refuse("api", Reason::ClusterOverload).unwrap();
    let limiter = plane.limiter();
    for _ in 0..5 {
        assert_eq!(
            reason(&ask(&limiter, "acme").await),
            Some(Reason::ClusterOverload)
        );
    }
    assert_eq!(plane.quota_requests(), 0);
    assert_eq!(
        counts(&limiter, "api", "acme"),
        Counts {
            offered: 5,
            dropped: 5,
            ..Counts::ZERO
        }
    );
    plane.admit("api").unwrap();
    assert_eq!(ask(&limiter, "acme").await, Decided::ADMITTED);
}

#[tokio::test]
async fn shadow_and_kill_debit_admit_and_count() {
    for is_killed in [false, true] {
        let plane = plane(2);
        let withhold = |yes| {
            if is_killed {
                plane.kill(yes)
            } else {
                plane.shadow("api", yes).unwrap()
            }
        };
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
        assert_eq!(
            plane.quota_requests(),
            3,
            "a refusal that is remembered is not asked for"
        );
        let due = Counts {
            offered: 5,
            would_quota_dropped: 3,
            ..Counts::ZERO
        };
        assert_eq!(counts(&limiter, "api", "acme"), due);
        assert_eq!(tally(&limiter, "api")[2], 3);
        withhold(false);
        assert_eq!(
            reason(&ask(&limiter, "acme").await),
            exceeded,
            "what was served was debited"
        );
    }
}

#[tokio::test]
async fn withheld_coin_refusal_is_debited() {
    let plane = plane(2);
    plane.refuse("api", Reason::ClusterOverload).unwrap();
    plane.shadow("api", true).unwrap();
    let limiter = plane.limiter();
    for _ in 0..5 {
        assert_eq!(
            ask(&limiter, "acme").await.withheld,
            Some(Reason::ClusterOverload)
        );
    }
    assert_eq!(
        counts(&limiter, "api", "acme"),
        Counts {
            offered: 5,
            would_dropped: 5,
            ..Counts::ZERO
        }
    );
    plane.admit("api").unwrap();
    plane.shadow("api", false).unwrap();
    assert_eq!(
        reason(&ask(&limiter, "acme").await),
        Some(Reason::TenantQuotaExceeded)
    );
}

#[tokio::test]
async fn failing_store_leaves_the_quotas_policy() {
    for (policy, admitted) in [
        (OnStoreError::Allow, 500),
        (OnStoreError::Deny, 0),
        (OnStoreError::AllowBounded, 10),
    ] {
        let plane = ControlPlane::new(7);
        plane
            .quotas("api", vec![quota("calls", 1_000, policy, 1)])
            .unwrap();
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
        let due = Counts {
            offered: 500,
            quota_dropped: 500 - admitted,
            ..Counts::ZERO
        };
        assert_eq!(counts(&limiter, "api", "acme"), due);
        assert_eq!(tally(&limiter, "api")[1], 500 - admitted);
        plane.fail_quota_store(false);
        assert_eq!(ask(&limiter, "acme").await, Decided::ADMITTED);
    }
}

#[tokio::test]
async fn checks_take_nothing_and_costs_are_whole() {
    let plane = plane(10);
    let limiter = plane.limiter();
    let ask = async |cost| limiter.explain(&request("api", "acme", cost)).await;
    assert_eq!(ask(7).await, Decided::ADMITTED);
    assert_eq!(reason(&ask(4).await), Some(Reason::TenantQuotaExceeded));
    assert_eq!(
        ask(0).await,
        Decided::ADMITTED,
        "the refusal was that of a larger cost"
    );
    assert_eq!(ask(3).await, Decided::ADMITTED);
    assert_eq!(reason(&ask(1).await), Some(Reason::TenantQuotaExceeded));
    assert_eq!(reason(&ask(0).await), Some(Reason::TenantQuotaExceeded));
    let due = Counts {
        offered: 15,
        quota_dropped: 5,
        ..Counts::ZERO
    };
    assert_eq!(counts(&limiter, "api", "acme"), due);
}

#[tokio::test]
async fn names_and_handles_are_one_tenant() {
    let plane = plane(2);
    let limiter = plane.limiter();
    let api = limiter.bucket("api").unwrap();
    for tenant in ["auth0|1a", "auth0|1b", "default"] {
        assert!(admits(&limiter, &Request::new("api", tenant)).await);
        assert!(admits(&limiter, &api.key(tenant).request()).await);
    }
    for tenant in ["auth0|1a", ""] {
        assert!(
            !admits(&limiter, &Request::new(&api, tenant)).await,
            "{tenant}"
        );
    }
}

#[test]
fn check_applies_remembered_quotas() {
    for (policy, lease, admitted) in [
        (OnStoreError::Allow, 1, 9),
        (OnStoreError::Deny, 1, 0),
        (OnStoreError::AllowBounded, 1, 1),
        // A lease decides exactly.
        (OnStoreError::Deny, 3, 3),
    ] {
        let plane = ControlPlane::new(7);
        plane
            .quotas("api", vec![quota("calls", 3, policy, lease)])
            .unwrap();
        let limiter = plane.limiter();
        let api = limiter.bucket("api").unwrap();
        assert_eq!(limiter.setup_problems(), []);
        let passed = (0..9)
            .filter(|_| limiter.check(&Request::new(&api, "acme")).is_admit())
            .count();
        assert_eq!(passed, admitted, "{policy:?} {lease}");
        let several = [Request::new(&api, "acme"), Request::new("free", "acme")];
        assert_eq!(
            limiter.check(&Request::all(&several)).is_admit(),
            policy == OnStoreError::Allow
        );
        let problem = SetupProblem::QuotasInMemory {
            bucket: "api".to_owned(),
        };
        assert_eq!(limiter.setup_problems(), [problem]);
    }
}

#[tokio::test(start_paused = true)]
async fn background_job_outwaits_its_quota() {
    let plane = plane(1);
    let limiter = plane.limiter();
    let job = |within| Request::new("api", "acme").within(within);
    assert!(admits(&limiter, &job(HOUR)).await);
    assert!(
        !admits(&limiter, &job(HOUR / 2)).await,
        "the reset is later"
    );
    let long = job(2 * HOUR);
    let waiting = limiter.check_async(&long);
    let passes = async {
        tokio::time::sleep(HOUR / 2).await;
        plane.advance(HOUR);
    };
    assert!(tokio::join!(waiting, passes).0.is_admit());
}

#[tokio::test]
async fn tenant_without_room_has_its_own_quota() {
    let plane = plane(1);
    let limiter = plane.limiter();
    for tenant in 0..2 * crate::testing::KEYS_MAX {
        assert!(
            admits(&limiter, &Request::new("api", &format!("t{tenant}"))).await,
            "{tenant}"
        );
    }
    let last = format!("t{}", 2 * crate::testing::KEYS_MAX - 1);
    assert!(!admits(&limiter, &Request::new("api", &last)).await);
}

#[tokio::test]
async fn several_keys_are_debited_all_or_none() {
    let plane = plane(3);
    plane.quota("other", 1, HOUR).unwrap();
    let limiter = plane.limiter();
    let keys = [
        request("free", "acme", 1),
        request("api", "acme", 1),
        request("other", "acme", 1),
    ];
    assert!(
        together(&limiter, &keys)
            .await
            .iter()
            .all(|decided| *decided == Decided::ADMITTED)
    );
    let decided = together(&limiter, &keys).await;
    let reasons: Vec<_> = decided.iter().map(reason).collect();
    assert_eq!(reasons, [None, None, Some(Reason::TenantQuotaExceeded)]);
    // The refused request counts so for all of its keys.
    let due = Counts {
        offered: 2,
        quota_dropped: 1,
        ..Counts::ZERO
    };
    for bucket in ["free", "api", "other"] {
        assert_eq!(counts(&limiter, bucket, "acme"), due, "{bucket}");
    }
    assert_eq!(
        reason(&together(&limiter, &keys).await[2]),
        Some(Reason::TenantQuotaExceeded)
    );
    assert_eq!(
        counts(&limiter, "other", "acme"),
        Counts {
            quota_repeated: 1,
            ..due
        }
    );
    assert_eq!(
        counts(&limiter, "api", "acme"),
        due,
        "a request that is refused from memory is not offered"
    );
    for left in [true, true, false] {
        assert_eq!(ask(&limiter, "acme").await.verdict.is_admit(), left);
    }
}

#[tokio::test]
async fn shadow_key_is_debited_without_refusing() {
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
        assert_eq!(
            (
                decided[0].withheld,
                reason(&decided[0]),
                reason(&decided[1])
            ),
            (watched, None, api)
        );
    }
    let due = Counts {
        offered: 4,
        would_quota_dropped: 2,
        quota_dropped: 1,
        ..Counts::ZERO
    };
    assert_eq!(counts(&limiter, "watched", "acme"), due);
    assert_eq!(
        counts(&limiter, "api", "acme"),
        Counts {
            offered: 4,
            quota_dropped: 1,
            ..Counts::ZERO
        }
    );
}

#[tokio::test]
async fn keys_without_quotas_are_unaffected() {
    let plane = plane(1);
    let limiter = plane.limiter();
    assert_eq!(
        together(&limiter, &[request("api", "acme", 1)]).await,
        [Decided::ADMITTED]
    );
    assert_eq!(
        reason(&together(&limiter, &[request("api", "acme", 1)]).await[0]),
        Some(Reason::TenantQuotaExceeded)
    );
    let keys = [request("free", "acme", 1), request("free", "globex", 1)];
    assert_eq!(
        together(&limiter, &keys).await,
        [Decided::ADMITTED, Decided::ADMITTED]
    );
    assert!(together(&limiter, &[]).await.is_empty());
    assert_eq!(plane.quota_requests(), 2);
}

#[tokio::test]
async fn cancelled_request_is_spent_as_admitted() {
    let plane = plane(1);
    let limiter = plane.limiter();
    plane.hold_quota_store(true);
    drop(limiter.explain(&request("api", "globex", 1)));
    plane.hold_quota_store(false);
    assert_eq!(counts(&limiter, "api", "globex"), offered(1));
    assert_eq!(
        reason(&ask(&limiter, "globex").await),
        Some(Reason::TenantQuotaExceeded)
    );
}

#[tokio::test]
async fn quotas_without_a_store_are_not_enforced() {
    let (limiter, _feed) = Limiter::builder("shop").build_detached().unwrap();
    let api = limiter.bucket("api").unwrap();
    let quotas = plimsoll_core::quota::BucketQuotas::new(vec![Arc::new(quota(
        "calls",
        1,
        OnStoreError::Deny,
        1,
    ))]);
    limiter
        .table
        .quotas
        .set(api.place.bucket, Some(&quotas.unwrap()));
    assert!(!limiter.has_quotas("api"));
    for _ in 0..5 {
        assert!(admits(&limiter, &Request::new(&api, "acme")).await);
    }
    assert_eq!(counts(&limiter, "api", "acme"), offered(5));
}

#[tokio::test]
async fn keys_with_withheld_refusals_ask_together() {
    let plane = plane(2);
    plane.quota("web", 2, HOUR).unwrap();
    for bucket in ["api", "web"] {
        plane.shadow(bucket, true).unwrap();
    }
    let limiter = plane.limiter();
    plane.hold_quota_store(true);
    let keys = [request("api", "acme", 1), request("web", "acme", 1)];
    let decided = {
        let request = Request::all(&keys);
        let mut deciding = std::pin::pin!(limiter.explain_each(&request));
        let polled =
            std::future::poll_fn(|cx| std::task::Poll::Ready(deciding.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        assert_eq!(
            plane.quota_requests(),
            2,
            "neither waits for the answer of the other"
        );
        plane.hold_quota_store(false);
        deciding.await
    };
    assert_eq!(decided.into_vec(), [Decided::ADMITTED, Decided::ADMITTED]);
}

#[tokio::test]
async fn quota_left_is_of_the_catalogued_plan() {
    let plane = ControlPlane::new(7);
    let rate = QuotaRate::new(2, 2, 3_600_000).unwrap();
    let free = (Tenant::class_of_plan("free").unwrap(), rate);
    let quotas = quota("calls", 3, OnStoreError::Deny, 1).with_overrides([free]);
    plane.quotas("api", vec![quotas.unwrap()]).unwrap();
    let limiter = plane.limiter();
    let key = limiter.bucket("api").unwrap().key("jo");
    limiter.table.classes.begin(0, "free");
    limiter.table.classes.set(key.place.key, Some(0));
    let request = Request::new("api", "jo");
    assert!(admits(&limiter, &request).await);
    let left = limiter.quota_left(&request).unwrap();
    assert_eq!((left.quota.rate.max(), left.remaining), (2, 1));
}

#[tokio::test]
async fn tenants_of_two_plans_have_their_own_numbers() {
    let plane = ControlPlane::new(7);
    let rates = [("acme", 7), ("%~free", 2), ("%~pro", 4)].map(|(entry, max)| {
        let rate = QuotaRate::new(max, max, 3_600_000).unwrap();
        (Tenant::new(entry).unwrap(), rate)
    });
    let deny = quota("calls", 3, OnStoreError::Deny, 1);
    plane
        .quotas("api", vec![deny.with_overrides(rates).unwrap()])
        .unwrap();
    plane.admit("free").unwrap();
    let limiter = plane.limiter();
    let wait = Duration::from_secs(1);
    for (tenant, plan, max) in [
        ("jo", "free", 2),
        ("flo", "free", 2),
        ("bo", "pro", 4),
        ("acme", "free", 7),
        ("mo", "", 3),
        ("lu", "gone", 3),
    ] {
        // Alone, with another key, and by a handle, as waiting requests ask.
        let request = Request::new("api", tenant).plan(plan);
        let (alone, waiting) = (request, request.within(wait));
        let (other, mut admitted) = (Request::new("free", tenant), 0);
        for at in 0..3 * (max as usize + 1) {
            let verdict = match at % 3 {
                0 => limiter.check_async(&alone).await,
                1 => limiter.check_async(&Request::all(&[other, alone])).await,
                _ => limiter.check_async(&waiting).await,
            };
            admitted += u64::from(verdict.is_admit());
            let left = limiter.quota_left(&request).unwrap();
            assert_eq!(left.remaining, max - admitted, "{tenant}");
            assert_eq!(left.quota.rate.max(), max, "{tenant}");
        }
        assert_eq!(admitted, max, "{tenant} in {plan:?}");
    }
}
