//! Leases: what a hot key asks of its store, and what returns.

use std::collections::HashSet;

use super::memory::Behaviour;
use super::*;

#[tokio::test(start_paused = true)]
async fn concurrent_requests_empty_the_bucket_exactly() {
    for (lease, max) in [(1, 500), (10, 500), (100, 500), (100, 1_000)] {
        let (memory, quota) = (Memory::new(), [hourly("calls", max, lease)]);
        let quotas = Quotas::on_memory(&memory, Duration::from_secs(5));
        let callers = (0..64).map(|_| {
            let (quotas, quota) = (quotas.clone(), quota.clone());
            tokio::spawn(async move {
                let mut granted = 0;
                for _ in 0..20 {
                    granted += u64::from(take(&quotas, &quota, "acme", 1).await == Exact::Granted);
                }
                granted
            })
        });
        let mut granted = 0;
        for caller in callers.collect::<Vec<_>>() {
            granted += caller.await.unwrap();
        }
        assert_eq!(
            granted, max,
            "lease {lease}: one instance uses its leases up to the last token"
        );
        assert_eq!(memory.debited_and_given().0, max);
        assert!(
            memory.calls() < 1_280 / 2,
            "{} calls for 1280 requests: they share them",
            memory.calls()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn hot_key_asks_once_per_lease() {
    let (memory, quota) = (Memory::new(), [hourly("calls", 100_000, 100)]);
    let quotas = on(&memory);
    for _ in 0..10_000 {
        assert_eq!(take(&quotas, &quota, "acme", 1).await, Exact::Granted);
    }
    // 10,000 requests at 75 to 100 tokens a call, after leases of 1, 2, 4 .. 64.
    assert!((100..=150).contains(&memory.calls()), "{}", memory.calls());
    let leased = quotas.counters().leased;
    assert_eq!(
        memory.debited_and_given().0,
        10_000 + leased,
        "every token was debited before its use"
    );
    assert!(leased <= 100, "{leased}");
}

#[tokio::test(start_paused = true)]
async fn cold_key_asks_each_time() {
    let (memory, quota) = (Memory::new(), [hourly("calls", 1_000, 100)]);
    let quotas = on(&memory);
    for tenant in 0..50 {
        assert_eq!(
            take(&quotas, &quota, &format!("tenant-{tenant}"), 1).await,
            Exact::Granted
        );
    }
    assert_eq!(
        (
            memory.debited_and_given().0,
            quotas.counters().leased,
            quotas.counters().keys
        ),
        (50, 0, 50)
    );

    let without = [hourly("strict", 1_000, 1)];
    let calls = memory.calls();
    for _ in 0..20 {
        assert_eq!(take(&quotas, &without, "acme", 1).await, Exact::Granted);
    }
    assert_eq!((memory.calls() - calls, quotas.counters().leased), (20, 0));
}

#[tokio::test(start_paused = true)]
async fn lease_ends_with_its_buckets_refill() {
    let (memory, quota) = (Memory::new(), [hourly("calls", 1_000, 100)]);
    let quotas = on(&memory);
    for _ in 0..60 {
        take(&quotas, &quota, "acme", 1).await;
    }
    let held = quotas.counters().leased;
    assert!(held > 0);
    tokio::time::advance(Duration::from_secs(3_600)).await;
    let debited = memory.debited_and_given().0;
    assert_eq!(take(&quotas, &quota, "acme", 1).await, Exact::Granted);
    assert!(
        memory.debited_and_given().0 > debited,
        "the tokens of the hour before are not used in this one"
    );
}

#[tokio::test(start_paused = true)]
async fn closing_returns_all_leases() {
    let (memory, quota) = (Memory::new(), [hourly("calls", 1_000, 100)]);
    let quotas = on(&memory);
    for _ in 0..60 {
        take(&quotas, &quota, "acme", 1).await;
    }
    turn().await;
    let leased = quotas.counters().leased;
    quotas.close(Duration::from_secs(1)).await;
    let (debited, given) = memory.debited_and_given();
    assert_eq!(
        (given, debited - given, quotas.counters().leased),
        (leased, 60, 0)
    );
    let calls = memory.calls();
    let left = 1_000 - debited;
    for _ in 0..left {
        assert_eq!(
            take(&quotas, &quota, "acme", 1).await,
            Exact::Granted,
            "its part of what was left is all"
        );
    }
    let (_, reason, _) = refusal(take(&quotas, &quota, "acme", 1).await).unwrap();
    assert_eq!((reason, memory.calls()), (Reason::QuotaDegraded, calls));
}

#[tokio::test(start_paused = true)]
async fn request_that_is_dropped_returns_its_tokens() {
    let (memory, quota) = (Memory::new(), [hourly("calls", 1_000, 1)]);
    memory.behave(Behaviour::AnswersAfter(Duration::from_millis(5)));
    let quotas = on(&memory);
    let Taking::Asking(answer) = quotas.take(&[asked(&quota, "acme", 3)], true) else {
        panic!("no lease covers it");
    };
    drop(answer);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(memory.debited_and_given(), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn late_answer_returns_its_tokens_or_pays() {
    for (policy, given) in [
        (OnStoreError::Deny, 2),
        (OnStoreError::Allow, 2),
        (OnStoreError::AllowBounded, 0),
    ] {
        let (memory, quota) = (Memory::new(), [hourly_or("calls", 1_000, 1, policy)]);
        memory.behave(Behaviour::AnswersAfter(Duration::from_millis(200)));
        let quotas = on(&memory);
        take(&quotas, &quota, "acme", 2).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(
            (memory.debited_and_given(), quotas.counters().late),
            ((2, given), 1)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn cost_beyond_the_lease_asks_for_more() {
    let (memory, quota) = (Memory::new(), [hourly("calls", 100, 20)]);
    let quotas = on(&memory);
    let mut used = 0;
    let mut costs = HashSet::new();
    for cost in [1, 1, 1, 1, 7, 13, 20, 3, 25, 28]
        .into_iter()
        .cycle()
        .take(40)
    {
        if take(&quotas, &quota, "acme", cost).await == Exact::Granted {
            used += u64::from(cost);
            costs.insert(cost);
        }
    }
    turn().await;
    assert_eq!(used, 100, "costs of 1 use the last tokens up");
    assert_eq!(
        memory.debited_and_given().0 - memory.debited_and_given().1,
        100
    );
    assert!(costs.contains(&25), "{costs:?}");
}

#[tokio::test(start_paused = true)]
async fn waiting_requests_use_the_last_tokens() {
    let (memory, quota) = (Memory::new(), [hourly("calls", 100, 1)]);
    memory.behave(Behaviour::AnswersAfter(Duration::from_millis(4)));
    let quotas = on(&memory);
    let callers = (0..200).map(|_| {
        let (quotas, quota) = (quotas.clone(), quota.clone());
        tokio::spawn(async move { take(&quotas, &quota, "acme", 1).await })
    });
    let (mut granted, mut refused) = (0, 0);
    for caller in callers.collect::<Vec<_>>() {
        match caller.await.unwrap() {
            Exact::Granted => granted += 1,
            Exact::Refused { reason, .. } => {
                refused += u32::from(reason == Reason::TenantQuotaExceeded)
            }
        }
    }
    assert_eq!(
        (granted, refused, memory.debited_and_given()),
        (100, 100, (100, 0))
    );
    assert!(memory.calls() <= 4, "{} calls", memory.calls());
}

#[tokio::test(start_paused = true)]
async fn closing_returns_leases_of_pending_calls() {
    for answers_after in [5, 200] {
        let (memory, quota) = (Memory::new(), [hourly("calls", 100_000, 100)]);
        let quotas = on(&memory);
        while quotas.counters().leased == 0 {
            take(&quotas, &quota, "acme", 1).await;
        }
        let leased = u32::try_from(quotas.counters().leased).unwrap();
        assert_eq!(take(&quotas, &quota, "acme", leased).await, Exact::Granted);
        turn().await;
        let before = memory.debited_and_given();
        let held = quotas.counters().leased;
        memory.behave(Behaviour::AnswersAfter(Duration::from_millis(
            answers_after,
        )));
        let cost = u32::try_from(held).unwrap() + 1;
        let taking = quotas.take(&[asked(&quota, "acme", cost)], true);
        assert!(matches!(taking, Taking::Asking(_)));
        turn().await;
        let (exact, ()) = tokio::join!(settled(taking), quotas.close(Duration::from_secs(1)));
        assert_eq!(exact, Exact::Granted);
        if answers_after > 20 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let (debited, given) = memory.debited_and_given();
        // A late answer pays for what the allowance has admitted.
        let used = u64::from(cost) - held;
        let added = (debited - before.0) - (given - before.1);
        assert_eq!(
            (added + held, quotas.counters().leased),
            (used + held, 0),
            "after {answers_after} ms"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_late_for_the_refill_stay_spent() {
    let (memory, quota) = (
        Memory::new(),
        [quota("calls", (100, 100, 10_000), 1, OnStoreError::Allow)],
    );
    let quotas = on(&memory);
    assert_eq!(take(&quotas, &quota, "acme", 1).await, Exact::Granted);
    tokio::time::advance(Duration::from_secs(9)).await;
    memory.behave(Behaviour::AnswersAfter(Duration::from_millis(700)));
    assert_eq!(take(&quotas, &quota, "acme", 3).await, Exact::Granted);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(
        (memory.debited_and_given(), quotas.counters().late),
        ((4, 0), 1)
    );
    assert_eq!(quotas.counters().lost, [("calls".to_owned(), 3)]);
}

#[tokio::test(start_paused = true)]
async fn remainder_counts_the_lease_and_refills() {
    for lease in [1, 100] {
        let (memory, quota) = (Memory::new(), [hourly("calls", 1_000, lease)]);
        let quotas = on(&memory);
        let left = || {
            quotas
                .left(&quota[0], "acme")
                .map(|left| (left.remaining, left.reset.as_secs().div_ceil(60)))
        };
        assert_eq!(left(), None, "nothing was heard");
        for taken in 1..=300 {
            assert_eq!(take(&quotas, &quota, "acme", 1).await, Exact::Granted);
            turn().await;
            assert_eq!(left(), Some((1_000 - taken, 60)), "lease {lease}");
        }
        tokio::time::sleep(Duration::from_secs(3_600 + 1_800)).await;
        assert_eq!(left(), Some((1_000, 30)), "after a refill");
        memory.behave(Behaviour::Silent);
        let _ = take(&quotas, &quota, "acme", 999).await;
        assert_eq!(left(), None, "the store does not answer");
    }
}
