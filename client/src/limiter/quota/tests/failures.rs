//! Stores that fail or hang: the policies, the breaker, and no waits.

use super::memory::Behaviour;
use super::*;
use crate::limiter::quota::calls::breaker::{FAILS_FOR, FAILURES_MAX};

fn per_hour(policy: OnStoreError, lease: u64) -> [Arc<Quota>; 1] {
    [hourly_or("calls", 1_000, lease, policy)]
}

async fn open_breaker(quotas: &Quotas) {
    let calls = per_hour(OnStoreError::Allow, 1);
    // A request that joins the call of another may fail with it.
    for _ in 0..FAILURES_MAX * 2 {
        assert_eq!(take(quotas, &calls, "first", 1).await, Exact::Granted);
        tokio::time::sleep(FAILS_FOR / 4).await;
    }
    assert!(!quotas.counters().is_up);
}

#[tokio::test(start_paused = true)]
async fn policy_decides_while_the_store_is_mute() {
    for behaviour in [Behaviour::Fails, Behaviour::Silent] {
        let memory = Memory::new();
        memory.behave(behaviour);
        let quotas = on(&memory);
        let degraded = Some(("calls".to_owned(), Reason::QuotaDegraded, None));
        let count = |quotas: Quotas, policy, lease, cost: u32| async move {
            let (mut granted, of) = (0, per_hour(policy, lease));
            for _ in 0..200 {
                granted += u32::from(take(&quotas, &of, "acme", cost).await == Exact::Granted);
            }
            granted
        };
        assert_eq!(
            refusal(take(&quotas, &per_hour(OnStoreError::Deny, 1), "acme", 1).await),
            degraded
        );
        assert_eq!(count(quotas.clone(), OnStoreError::Deny, 1, 1).await, 0);
        assert_eq!(count(quotas.clone(), OnStoreError::Allow, 1, 1).await, 200);
        assert_eq!(
            count(quotas.clone(), OnStoreError::AllowBounded, 1, 1).await,
            10,
            "a hundredth"
        );
        tokio::time::advance(Duration::from_secs(3_600)).await;
        assert_eq!(
            count(quotas.clone(), OnStoreError::AllowBounded, 60, 2).await,
            30,
            "a lease"
        );
        assert!(
            quotas
                .counters()
                .degraded
                .iter()
                .all(|(_, count)| *count >= 200)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn mute_store_is_down_from_the_start() {
    for behaviour in [Behaviour::Fails, Behaviour::Silent] {
        let memory = Memory::new();
        memory.behave(behaviour);
        let quotas = on(&memory);
        quotas.warm();
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(!quotas.counters().is_up);
        let of = per_hour(OnStoreError::Deny, 1);
        let taking = quotas.take(&[asked(&of, "acme", 1)], true);
        assert!(matches!(taking, Taking::Ready(_)), "no request waits");
        memory.behave(Behaviour::Answers);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(quotas.counters().is_up);
    }
    let quotas = on(&Memory::new());
    quotas.warm();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(quotas.counters().is_up);
}

#[tokio::test(start_paused = true)]
async fn what_an_outage_admitted_is_paid_first() {
    let memory = Memory::new();
    let quotas = on(&memory);
    let of = [quota(
        "calls",
        (10, 10, 3_600_000),
        1,
        OnStoreError::AllowBounded,
    )];
    let mut admitted = 0;
    for (behaviour, requests) in [
        (Behaviour::Answers, 3),
        (Behaviour::Fails, 20),
        (Behaviour::Answers, 20),
    ] {
        memory.behave(behaviour);
        tokio::time::sleep(Duration::from_secs(10)).await;
        for _ in 0..requests {
            admitted += u32::from(take(&quotas, &of, "acme", 1).await == Exact::Granted);
        }
    }
    assert_eq!(admitted, 10, "exactly the quota");
}

#[tokio::test(start_paused = true)]
async fn open_breaker_spares_requests_then_closes() {
    let memory = Memory::new();
    memory.behave(Behaviour::Silent);
    let quotas = on(&memory);
    open_breaker(&quotas).await;
    let calls = memory.calls();
    let of = per_hour(OnStoreError::AllowBounded, 1);
    for _ in 0..100 {
        let taking = quotas.take(&[asked(&of, "acme", 1)], true);
        assert!(matches!(taking, Taking::Ready(_)), "no request waits");
    }
    assert_eq!(memory.calls(), calls);
    memory.behave(Behaviour::Answers);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(quotas.counters().is_up, "without a request");
    assert_eq!(take(&quotas, &of, "other", 1).await, Exact::Granted);
    assert_eq!(memory.calls(), calls + 1);
}

#[tokio::test(start_paused = true)]
async fn slow_store_keeps_the_breaker_open() {
    let memory = Memory::new();
    memory.behave(Behaviour::AnswersAfter(Duration::from_millis(200)));
    let quotas = on(&memory);
    open_breaker(&quotas).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!quotas.counters().is_up);
}

#[tokio::test(start_paused = true)]
async fn leases_serve_while_the_store_is_away() {
    let (memory, of) = (Memory::new(), per_hour(OnStoreError::Deny, 100));
    let quotas = on(&memory);
    for _ in 0..60 {
        take(&quotas, &of, "acme", 1).await;
    }
    turn().await;
    let leased = quotas.counters().leased;
    assert!(leased > 10);
    memory.behave(Behaviour::Fails);
    open_breaker(&quotas).await;
    for _ in 0..leased {
        assert_eq!(take(&quotas, &of, "acme", 1).await, Exact::Granted);
    }
    assert!(refusal(take(&quotas, &of, "acme", 1).await).is_some());
}

#[tokio::test(start_paused = true)]
async fn refusing_policy_returns_the_other_tokens() {
    let memory = Memory::new();
    memory.behave(Behaviour::Fails);
    let quotas = on(&memory);
    let bounded = hourly_or("bounded", 1_000, 5, OnStoreError::AllowBounded);
    let both = [
        bounded.clone(),
        quota("denied", (10, 10, 1_000), 1, OnStoreError::Deny),
    ];
    for _ in 0..20 {
        let (name, reason, _) = refusal(take(&quotas, &both, "acme", 1).await).unwrap();
        assert_eq!((name.as_str(), reason), ("denied", Reason::QuotaDegraded));
    }
    for _ in 0..5 {
        assert_eq!(
            take(&quotas, std::slice::from_ref(&bounded), "acme", 1).await,
            Exact::Granted
        );
    }
    assert!(refusal(take(&quotas, &[bounded], "acme", 1).await).is_some());
}

#[tokio::test(start_paused = true)]
async fn request_waits_no_longer_than_the_deadline() {
    let memory = Memory::new();
    memory.behave(Behaviour::TakesInSilence);
    let quotas = on(&memory);
    let started = tokio::time::Instant::now();
    let of = per_hour(OnStoreError::Allow, 1);
    let together = [of[0].clone(), hourly("other", 10, 1)];
    assert_eq!(take(&quotas, &of, "acme", 1).await, Exact::Granted);
    assert_eq!(take(&quotas, &together, "other", 1).await, Exact::Granted);
    assert!(
        started.elapsed() <= TIMEOUT_DEFAULT * 2 + Duration::from_millis(4),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn outside_of_a_runtime_the_policy_decides() {
    let quotas = on(&Memory::new());
    let of = per_hour(OnStoreError::Deny, 1);
    let Taking::Ready(exact) = quotas.take(&[asked(&of, "acme", 1)], true) else {
        panic!("nothing runs the call");
    };
    assert_eq!(
        refusal(exact).map(|(_, reason, _)| reason),
        Some(Reason::QuotaDegraded)
    );
}

/// A server with a second connection that takes commands and never answers.
async fn half_silent() -> (u16, Arc<std::sync::atomic::AtomicUsize>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let accepted = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            tokio::spawn(async move {
                let mut bytes = vec![0; 65_536];
                while let Ok(read @ 1..) = socket.read(&mut bytes).await {
                    let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
                    let mut reply = "+OK\r\n".repeat(text.matches("SETINFO").count());
                    if number != 1 {
                        let takes = text.matches("QUOTA.TAKE").count();
                        reply += &"*1\r\n*4\r\n:1\r\n:9\r\n:60000\r\n:0\r\n".repeat(takes);
                    }
                    socket.write_all(reply.as_bytes()).await.unwrap();
                }
            });
        }
    });
    (port, accepted)
}

#[tokio::test]
async fn mute_connection_is_replaced_beside_another() {
    let (port, accepted) = half_silent().await;
    let store = crate::QuotaStore::new(&format!("plimsoll://127.0.0.1:{port}")).unwrap();
    let quotas = Quotas::new(&store.timeout(Duration::from_millis(200))).unwrap();
    let of = per_hour(OnStoreError::Allow, 1);
    let replaced = async {
        while accepted.load(std::sync::atomic::Ordering::Relaxed) < 3 {
            assert_eq!(take(&quotas, &of, "acme", 1).await, Exact::Granted);
        }
    };
    tokio::time::timeout(Duration::from_secs(20), replaced)
        .await
        .expect("no third connection");
}
