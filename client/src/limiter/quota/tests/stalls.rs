//! Stores that stop for a moment, as callers see them: what is refused, and what becomes of the tokens.

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::memory::Behaviour;
use super::*;

const DAY_MS: u64 = 86_400_000;
const LASTS: Duration = Duration::from_secs(6);
const GAP: Duration = Duration::from_millis(1);
const EVERY: Duration = Duration::from_secs(1);

async fn send(quotas: &Quotas, of: &Arc<Quota>, tenants: u64) -> (u64, u64) {
    let (begun, mut sent, mut requests) = (Instant::now(), 0, JoinSet::new());
    while begun.elapsed() < LASTS {
        let (quotas, of, tenant) = (
            quotas.clone(),
            [Arc::clone(of)],
            format!("t{}", sent % tenants),
        );
        requests.spawn(async move { take(&quotas, &of, &tenant, 1).await == Exact::Granted });
        sent += 1;
        sleep_until(begun + GAP * u32::try_from(sent).unwrap()).await;
    }
    let granted = requests
        .join_all()
        .await
        .into_iter()
        .filter(|is_granted| *is_granted)
        .count();
    (sent, granted as u64)
}

#[tokio::test(start_paused = true)]
async fn short_stalls_are_not_amplified() {
    for timeout in [10, 20].map(Duration::from_millis) {
        for (lasts, tenants, lease) in [
            (20, 50, 1),
            (36, 50, 1),
            (60, 50, 1),
            (60, 1, 1),
            (60, 5, 100),
            (130, 50, 1),
            (400, 50, 1),
        ] {
            let (memory, lasts) = (Memory::new(), Duration::from_millis(lasts));
            memory.behave(Behaviour::Stalls {
                every: EVERY,
                lasts,
            });
            let quotas = Quotas::on_memory(&memory, timeout);
            let of = quota(
                "calls",
                (1_000_000, 1_000_000, DAY_MS),
                lease,
                OnStoreError::Deny,
            );
            let (sent, granted) = send(&quotas, &of, tenants).await;
            let refused = 1.0 - granted as f64 / sent as f64;
            assert!(
                refused <= 2.0 * lasts.as_secs_f64(),
                "{refused} refused: {lasts:?} each second, {tenants} tenants, lease {lease}, {timeout:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn late_answers_lose_no_token() {
    for lasts in [20, 60, 150].map(Duration::from_millis) {
        let memory = Memory::new();
        memory.behave(Behaviour::Stalls {
            every: EVERY,
            lasts,
        });
        let quotas = Quotas::on_memory(&memory, Duration::from_millis(10));
        let of = quota(
            "calls",
            (1_000_000, 1_000_000, DAY_MS),
            1,
            OnStoreError::Deny,
        );
        let (_, granted) = send(&quotas, &of, 50).await;
        sleep(Duration::from_secs(3)).await;
        quotas.close(Duration::from_secs(1)).await;
        let (debited, given) = memory.debited_and_given();
        assert_eq!(
            (debited - given, quotas.counters().lost),
            (granted, Vec::new()),
            "{lasts:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn gives_wait_past_the_breaker() {
    let (memory, of) = (
        Memory::new(),
        [quota(
            "calls",
            (1_000, 1_000, DAY_MS),
            1,
            OnStoreError::Deny,
        )],
    );
    let quotas = on(&memory);
    memory.behave(Behaviour::AnswersAfter(Duration::from_millis(400)));
    for _ in 0..20 {
        assert!(refusal(take(&quotas, &of, "acme", 1).await).is_some());
    }
    assert!(!quotas.counters().is_up && memory.debited_and_given().0 > 0);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(memory.debited_and_given().1, 0, "the breaker is open");
    memory.behave(Behaviour::Answers);
    sleep(Duration::from_secs(10)).await;
    let (debited, given) = memory.debited_and_given();
    assert_eq!((given, quotas.counters().lost), (debited, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn closing_gives_past_an_open_breaker() {
    let memory = Memory::new();
    let of = [quota(
        "calls",
        (1_000, 1_000, DAY_MS),
        20,
        OnStoreError::Deny,
    )];
    let quotas = on(&memory);
    assert_eq!(take(&quotas, &of, "acme", 1).await, Exact::Granted);
    memory.behave(Behaviour::AnswersAfter(Duration::from_millis(400)));
    for tenant in 0..20 {
        let tenant = format!("t{tenant}");
        assert!(refusal(take(&quotas, &of, &tenant, 1).await).is_some());
    }
    assert!(!quotas.counters().is_up);
    quotas.close(Duration::from_secs(1)).await;
    let (debited, given) = memory.debited_and_given();
    assert_eq!((debited - given, quotas.counters().lost), (1, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn instances_pass_their_parts_and_pay() {
    let (memory, of) = (
        Memory::new(),
        [quota(
            "calls",
            (600, 600, DAY_MS),
            1,
            OnStoreError::AllowBounded,
        )],
    );
    let fleet = [on(&memory), on(&memory)];
    for at in 0..31 {
        assert_eq!(take(&fleet[at % 2], &of, "acme", 1).await, Exact::Granted);
    }
    memory.behave(Behaviour::Fails);
    let mut passed = 0;
    for at in 0..1_200 {
        match refusal(take(&fleet[at % 2], &of, "acme", 1).await) {
            None => passed += 1,
            Some((_, reason, _)) => assert_eq!(reason, Reason::QuotaDegraded),
        }
    }
    assert!((500..600).contains(&passed), "{passed} of the 569 left");
    memory.behave(Behaviour::Answers);
    sleep(Duration::from_secs(10)).await;
    let mut after = 0;
    for at in 0..200 {
        after += u32::from(take(&fleet[at % 2], &of, "acme", 1).await == Exact::Granted);
    }
    assert!(
        after < 60,
        "{after} more, although {passed} of 569 were passed"
    );
}
