//! A disk that fails or hangs.

use std::time::{Duration, Instant};

use super::support::*;
use crate::args::Durability;
use crate::engine::Engine;
use crate::engine::reader::READ_BUCKETS_MAX;
use crate::operation::{Answer, Unavailable};

/// Far above the deadline, and far below what a caller that waits for a disk would take.
const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn failed_durable_commits_grant_nothing() {
    let data = tempfile::tempdir().unwrap();
    let (engine, faults) = faulty(&settings(data.path(), Durability::Always));
    let a = bucket("a", 100);
    assert_eq!(run(&engine, reduce(a, 1)).await, Ok(Answer::Tokens(100)));
    faults.commits_fail(true);
    assert_eq!(run(&engine, reduce(a, 1)).await, Err(Unavailable::Store));
    eventually("not ready", async || !engine.is_ready()).await;
    let began = Instant::now();
    for _ in 0..50 {
        assert_eq!(run(&engine, reduce(a, 1)).await, Err(Unavailable::Store));
    }
    assert!(began.elapsed() < SOON);
    assert!(engine.stats().store_errors > 0);
    faults.commits_fail(false);
    eventually("ready", async || engine.is_ready()).await;
    // The debit that was not answered stays: nothing is granted twice.
    let Ok(Answer::Tokens(left)) = run(&engine, reduce(a, 1)).await else {
        panic!()
    };
    assert!((97..99).contains(&left), "{left}");
    drop(engine);
    let engine = open(data.path(), Durability::Always);
    assert_eq!(tokens(&engine, a).await, left - 1);
}

#[tokio::test]
async fn hanging_disk_refuses_without_delay() {
    for durability in [INTERVAL, Durability::Always] {
        let data = tempfile::tempdir().unwrap();
        let (engine, faults) = faulty(&settings(data.path(), durability));
        let a = bucket("a", 1_000_000);
        run(&engine, reduce(a, 1)).await.unwrap();
        faults.hang(true);
        let began = Instant::now();
        eventually("refused", async || {
            run(&engine, reduce(a, 1)).await == Err(Unavailable::Store)
        })
        .await;
        eventually("not ready", async || !engine.is_ready()).await;
        for _ in 0..100 {
            assert_eq!(run(&engine, reduce(a, 1)).await, Err(Unavailable::Store));
        }
        assert!(began.elapsed() < SOON, "{durability}");
        faults.hang(false);
        eventually("granted", async || run(&engine, reduce(a, 1)).await.is_ok()).await;
        assert!(engine.is_ready());
    }
}

#[tokio::test]
async fn unreadable_bucket_grants_nothing() {
    let data = tempfile::tempdir().unwrap();
    let (engine, faults) = faulty(&settings(data.path(), INTERVAL));
    let (known, unknown) = (bucket("known", 10), bucket("unknown", 10));
    run(&engine, reduce(known, 1)).await.unwrap();
    faults.reads_fail(true);
    let answers = run_all(
        &engine,
        &[reduce(known, 1), reduce(unknown, 1), reduce(known, 1)],
    )
    .await;
    assert_eq!(
        answers,
        [
            Ok(Answer::Tokens(9)),
            Err(Unavailable::Store),
            Ok(Answer::Tokens(8))
        ]
    );
    faults.reads_fail(false);
    assert_eq!(
        run(&engine, reduce(unknown, 1)).await,
        Ok(Answer::Tokens(10))
    );
}

#[tokio::test]
async fn grants_without_durability_survive_hangs() {
    let data = tempfile::tempdir().unwrap();
    let (engine, faults) = faulty(&settings(data.path(), Durability::None));
    let a = bucket("a", 10);
    run(&engine, reduce(a, 1)).await.unwrap();
    faults.hang(true);
    assert_eq!(run(&engine, reduce(a, 1)).await, Ok(Answer::Tokens(9)));
    assert_eq!(
        run(&engine, reduce(bucket("b", 10), 1)).await,
        Err(Unavailable::Store)
    );
    faults.hang(false);
    engine.close().await.unwrap();
    assert_eq!(faults.commits(), 1);
}

#[tokio::test]
async fn waiting_callers_share_commits() {
    let data = tempfile::tempdir().unwrap();
    let (engine, faults) = faulty(&settings(data.path(), Durability::Always));
    let keys: Vec<String> = (0..200).map(|number| format!("k{number}")).collect();
    for key in &keys {
        tokens(&engine, bucket(key, 10)).await;
    }
    faults.hang(true);
    let mut callers = tokio::task::JoinSet::new();
    for key in keys.clone() {
        let engine = engine.clone();
        callers.spawn(async move { run(&engine, reduce(bucket(&key, 10), 1)).await });
    }
    eventually("all wait", async || {
        engine.stats().waiting == 200 || callers.is_empty()
    })
    .await;
    faults.hang(false);
    let answers = callers.join_all().await;
    let granted = answers.iter().filter(|answer| answer.is_ok()).count();
    assert!(faults.commits() <= 3, "{} commits", faults.commits());
    // On a machine that paused for the whole deadline, some were refused.
    assert!(granted == 200 || answers.contains(&Err(Unavailable::Store)));
}

async fn ask_new(engine: &Engine, round: usize, count: usize) -> Vec<Result<Answer, Unavailable>> {
    let keys: Vec<String> = (0..count)
        .map(|number| format!("{round}-{number}"))
        .collect();
    let operations: Vec<_> = keys.iter().map(|key| reduce(bucket(key, 10), 1)).collect();
    run_all(engine, &operations).await
}

#[tokio::test]
async fn unawaited_reads_are_not_made() {
    const ROUNDS: usize = 8;
    let data = tempfile::tempdir().unwrap();
    let (engine, faults) = faulty(&settings(data.path(), Durability::None));
    faults.hang(true);
    for round in 0..ROUNDS {
        let answers = ask_new(&engine, round, 1_000).await;
        assert!(
            answers
                .iter()
                .all(|answer| *answer == Err(Unavailable::Store))
        );
    }
    faults.hang(false);
    eventually("served", async || {
        ask_new(&engine, ROUNDS, 1).await == [Ok(Answer::Tokens(10))]
    })
    .await;
    let reads = faults.reads();
    assert!(
        reads < 1_000,
        "{reads} reads for {ROUNDS} runs that had ended"
    );
}

#[tokio::test]
async fn buckets_waiting_for_a_disk_are_bounded() {
    let data = tempfile::tempdir().unwrap();
    let (engine, faults) = faulty(&settings(data.path(), Durability::None));
    faults.hang(true);
    for round in 0..4 {
        let answers = ask_new(&engine, round, READ_BUCKETS_MAX / 4).await;
        assert_eq!(answers[0], Err(Unavailable::Store));
    }
    assert_eq!(ask_new(&engine, 4, 1).await, [Err(Unavailable::Busy)]);
    faults.hang(false);
    eventually("served", async || ask_new(&engine, 4, 1).await[0].is_ok()).await;
}
