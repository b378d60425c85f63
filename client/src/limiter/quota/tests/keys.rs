//! Several quotas and keys of one request, and refusals that are remembered.

use super::*;

#[tokio::test(start_paused = true)]
async fn all_request_quotas_are_debited_or_none() {
    for lease in [1, 10] {
        let memory = Memory::new();
        let (minute, hour) = (
            quota("minute", (10, 10, 60_000), lease, OnStoreError::Deny),
            hourly("hour", 15, lease),
        );
        let (both, quotas) = ([minute, hour], on(&memory));
        for _ in 0..10 {
            assert_eq!(take(&quotas, &both, "acme", 1).await, Exact::Granted);
        }
        let refused = refusal(take(&quotas, &both, "acme", 1).await);
        assert_eq!(
            refused,
            Some(("minute".to_owned(), Reason::TenantQuotaExceeded, Some(60))),
            "lease {lease}"
        );
        turn().await;
        let (debited, given) = memory.debited_and_given();
        assert_eq!(
            debited - given - quotas.counters().leased,
            20,
            "the other quota lost nothing"
        );
        tokio::time::advance(Duration::from_secs(60)).await;
        for _ in 0..5 {
            assert_eq!(
                take(&quotas, &both, "acme", 1).await,
                Exact::Granted,
                "lease {lease}"
            );
        }
        let refused = refusal(take(&quotas, &both, "acme", 1).await).unwrap();
        assert_eq!(
            (refused.0.as_str(), refused.1),
            ("hour", Reason::TenantQuotaExceeded)
        );
        assert_eq!(take(&quotas, &both, "other", 1).await, Exact::Granted);
    }
}

#[tokio::test(start_paused = true)]
async fn keys_of_several_tenants_are_taken_together() {
    let (memory, calls, users) = (
        Memory::new(),
        [hourly("calls", 5, 1)],
        [hourly("users", 2, 1)],
    );
    let quotas = on(&memory);
    let ask = || [asked(&calls, "acme", 1), asked(&users, "jo", 1)];
    for _ in 0..2 {
        assert_eq!(settled(quotas.take(&ask(), true)).await, Exact::Granted);
    }
    let Exact::Refused { at, quota, .. } = settled(quotas.take(&ask(), true)).await else {
        panic!("of 2")
    };
    assert_eq!((at, quota.name.as_str()), (1, "users"));
    assert_eq!(memory.debited_and_given(), (4, 0));
    assert!(matches!(
        quotas.remembered(&ask()),
        Some(Exact::Refused { at: 1, .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn shared_quota_is_debited_by_larger_cost() {
    let (memory, calls) = (Memory::new(), [hourly("calls", 10, 1)]);
    let quotas = on(&memory);
    let asked = [
        asked(&calls, "acme", 2),
        asked(&calls, "acme", 3),
        asked(&calls, "other", 0),
    ];
    assert_eq!(settled(quotas.take(&asked, true)).await, Exact::Granted);
    assert_eq!((memory.debited_and_given().0, memory.calls()), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn global_quota_is_one_bucket_for_all() {
    let rate = QuotaRate::new(2, 2, 1_000).unwrap();
    let name = "all".parse().unwrap();
    let all = [Arc::new(
        Quota::new(name, rate, QuotaKey::Global, OnStoreError::Deny, 1).unwrap(),
    )];
    let quotas = on(&Memory::new());
    assert_eq!(take(&quotas, &all, "acme", 1).await, Exact::Granted);
    assert_eq!(take(&quotas, &all, "other", 1).await, Exact::Granted);
    assert!(refusal(take(&quotas, &all, "third", 1).await).is_some());
}

#[tokio::test(start_paused = true)]
async fn refusal_covers_its_cost_and_above() {
    let (memory, calls) = (Memory::new(), [hourly("calls", 10, 1)]);
    let quotas = on(&memory);
    assert_eq!(remembered(&quotas, &calls, "acme", 1), None);
    take(&quotas, &calls, "acme", 8).await;
    let refused = refusal(take(&quotas, &calls, "acme", 3).await);
    assert_eq!(
        refused,
        Some(("calls".to_owned(), Reason::TenantQuotaExceeded, Some(3_600)))
    );
    let again = |cost| {
        remembered(&quotas, &calls, "acme", cost)
            .and_then(refusal)
            .map(|(_, _, wait)| wait)
    };
    assert_eq!(
        (again(2), again(3), again(9)),
        (None, Some(Some(3_600)), Some(Some(3_600)))
    );
    assert_eq!(again(11), Some(None), "more than the quota ever has");
    assert_eq!(remembered(&quotas, &calls, "other", 3), None);
    assert_eq!(take(&quotas, &calls, "acme", 2).await, Exact::Granted);

    tokio::time::advance(Duration::from_secs(3_601)).await;
    assert_eq!(again(3), None);
    assert_eq!(take(&quotas, &calls, "acme", 3).await, Exact::Granted);
}

#[tokio::test(start_paused = true)]
async fn remembered_refusal_is_regularly_probed() {
    let (memory, calls) = (Memory::new(), [hourly("calls", 1, 1)]);
    let quotas = on(&memory);
    let is_remembered = || remembered(&quotas, &calls, "acme", 1).is_some();
    take(&quotas, &calls, "acme", 1).await;
    take(&quotas, &calls, "acme", 1).await;
    assert!(is_remembered());
    tokio::time::advance(Duration::from_secs(5)).await;
    assert!(!is_remembered() && is_remembered(), "one passes");
    assert!(refusal(take(&quotas, &calls, "acme", 1).await).is_some());

    // The quota grows: it is another bucket, without memory.
    assert_eq!(
        remembered(&quotas, &[hourly("calls", 2, 1)], "acme", 1),
        None
    );
}

#[tokio::test(start_paused = true)]
async fn granted_probe_ends_its_refusal() {
    let (memory, calls) = (Memory::new(), [hourly("calls", 3, 1)]);
    let quotas = on(&memory);
    take(&quotas, &calls, "acme", 3).await;
    take(&quotas, &calls, "acme", 1).await;
    assert!(remembered(&quotas, &calls, "acme", 1).is_some());
    memory.reset();
    assert!(remembered(&quotas, &calls, "acme", 1).is_some());
    assert_eq!(
        take(&quotas, &calls, "acme", 1).await,
        Exact::Granted,
        "the request that asks again"
    );
    assert!(remembered(&quotas, &calls, "acme", 1).is_none());
}

#[tokio::test(start_paused = true)]
async fn one_refusal_ends_despite_another() {
    let (memory, first, second) = (
        Memory::new(),
        [hourly("first", 1, 1)],
        [hourly("second", 1, 1)],
    );
    let (quotas, both) = (on(&memory), [first[0].clone(), second[0].clone()]);
    assert_eq!(take(&quotas, &both, "acme", 1).await, Exact::Granted);
    assert!(refusal(take(&quotas, &first, "acme", 1).await).is_some());
    // An operator resets both, and the second is used up again.
    memory.reset();
    assert_eq!(take(&quotas, &second, "acme", 1).await, Exact::Granted);
    let (name, ..) = refusal(take(&quotas, &both, "acme", 1).await).unwrap();
    assert_eq!(name, "second");
    assert_eq!(remembered(&quotas, &first, "acme", 1), None);
    assert!(remembered(&quotas, &second, "acme", 1).is_some());
}
