//! The answers of operations, and what they leave on disk.

use plimsoll_core::quota::{GcraRate, QuotaRate, Refill};
use smallvec::smallvec;

use super::support::*;
use crate::args::Durability;
use crate::operation::{Answer, BucketName, Operation};

const EVERY: [Durability; 3] = [Durability::Always, INTERVAL, Durability::None];

#[tokio::test]
async fn debits_survive_restarts_at_every_durability() {
    for durability in EVERY {
        let data = tempfile::tempdir().unwrap();
        let engine = open(data.path(), durability);
        let a = bucket("a", 10);
        let replies = run_all(
            &engine,
            &[
                reduce(a, 3),
                reduce(a, 3),
                reduce(bucket("b", 5), 5),
                reduce(a, 9),
            ],
        )
        .await;
        let expected: Vec<_> = [10, 7, 5, 4]
            .map(|tokens| Ok(Answer::Tokens(tokens)))
            .into();
        assert_eq!(replies, expected);
        engine.close().await.unwrap();
        drop(engine);
        let engine = open(data.path(), durability);
        assert_eq!(
            (
                tokens(&engine, a).await,
                tokens(&engine, bucket("b", 5)).await
            ),
            (0, 0),
            "{durability}"
        );
        assert_eq!(
            tokens(&engine, bucket("a", 11)).await,
            11,
            "the parameters are a part of the key"
        );
    }
}

#[tokio::test]
async fn throttles_and_sessions_survive_restarts() {
    let data = tempfile::tempdir().unwrap();
    let engine = open(data.path(), INTERVAL);
    let throttle = Operation::Throttle {
        key: b"t",
        rate: GcraRate::new(0, 1, 3_600).unwrap(),
        quantity: 1,
    };
    let session = Operation::Sessionize {
        bucket: bucket("s", 3),
        at_ms: Some(77),
        take: 1,
    };
    let Ok(Answer::Throttled(first)) = run(&engine, throttle.clone()).await else {
        panic!()
    };
    assert!(!first.limited);
    run(&engine, session.clone()).await.unwrap();
    engine.close().await.unwrap();
    drop(engine);
    let engine = open(data.path(), INTERVAL);
    let Ok(Answer::Throttled(second)) = run(&engine, throttle).await else {
        panic!()
    };
    assert!(second.limited);
    let Ok(Answer::Session(session)) = run(
        &engine,
        Operation::Sessionize {
            bucket: bucket("s", 3),
            at_ms: Some(99),
            take: 0,
        },
    )
    .await
    else {
        panic!()
    };
    assert_eq!((session.tokens_before, session.start_ms), (2, 77));
}

#[tokio::test]
async fn question_about_new_buckets_writes_nothing() {
    let data = tempfile::tempdir().unwrap();
    let engine = open(data.path(), Durability::Always);
    let bucket = BucketName {
        key: b"k",
        rate: QuotaRate::new(2, 2, 100).unwrap(),
    };
    let at = |at_ms, take| Operation::Reduce {
        bucket,
        at_ms: Some(at_ms),
        take,
        refill: Refill::OnPhase,
    };
    let replies = run_all(&engine, &[at(0, 0), at(50, 2), at(149, 0), at(150, 0)]).await;
    let expected: Vec<_> = [2, 2, 0, 2].map(|tokens| Ok(Answer::Tokens(tokens))).into();
    assert_eq!(replies, expected);
    assert_eq!(engine.stats().commits, 1);
    run_all(&engine, &[at(149, 5), at(149, 0)]).await;
    assert_eq!(
        engine.stats().commits,
        1,
        "a refusal by an empty bucket changes nothing"
    );
}

#[tokio::test]
async fn take_debits_all_buckets_or_none() {
    let data = tempfile::tempdir().unwrap();
    let engine = open(data.path(), INTERVAL);
    let (a, b) = (bucket("a", 10), bucket("b", 3));
    assert_eq!(
        take(&engine, &[demand(a, 2, 2), demand(b, 2, 2)]).await,
        [2, 2]
    );
    assert_eq!(
        take(&engine, &[demand(a, 2, 2), demand(b, 2, 2)]).await,
        [0, 0]
    );
    assert_eq!((tokens(&engine, a).await, tokens(&engine, b).await), (8, 1));
    assert_eq!(
        take(&engine, &[demand(a, 1, 100)]).await,
        [2],
        "a lease takes a quarter of what is left"
    );
    assert_eq!(
        take(&engine, &[demand(a, 6, 6), demand(b, 1, 1)]).await,
        [6, 1]
    );
    let give = Operation::Give {
        bucket: a,
        tokens: 4,
    };
    assert_eq!(run(&engine, give).await, Ok(Answer::Tokens(4)));
    let refused = Operation::Take(smallvec![demand(a, 11, 11)]);
    let Ok(Answer::Taken(taken)) = run(&engine, refused).await else {
        panic!()
    };
    assert_eq!(
        (taken[0].granted, taken[0].remaining, taken[0].holds_in_ms),
        (0, 4, None)
    );
}

#[tokio::test]
async fn server_clock_never_runs_backwards() {
    let data = tempfile::tempdir().unwrap();
    let engine = open(data.path(), INTERVAL);
    let bucket = BucketName {
        key: b"k",
        rate: QuotaRate::new(1, 1, 1_000).unwrap(),
    };
    let mut answers = Vec::new();
    for (now, expected) in [(NOW, 1), (NOW - 5_000, 0), (NOW + 999, 0), (NOW + 1_000, 1)] {
        engine.run(now, &[reduce(bucket, 1)], &mut answers).await;
        assert_eq!(answers.pop(), Some(Ok(Answer::Tokens(expected))), "{now}");
    }
}

#[tokio::test]
async fn run_in_memory_completes_immediately() {
    let data = tempfile::tempdir().unwrap();
    let engine = open(data.path(), Durability::None);
    let operations = [reduce(bucket("a", 10), 1), reduce(bucket("b", 10), 1)];
    run_all(&engine, &operations).await;
    let mut answers = Vec::new();
    let mut run = std::pin::pin!(engine.run(NOW, &operations, &mut answers));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(run.as_mut().poll(&mut context).is_ready());
}
