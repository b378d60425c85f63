//! Look-ups and resets by operators.

use super::support::*;
use crate::args::Durability;
use crate::engine::operator::{Bucket, PAGE_MAX};
use crate::store::State;

#[tokio::test]
async fn buckets_are_listed_in_pages_by_key() {
    let data = tempfile::tempdir().unwrap();
    let engine = open(data.path(), Durability::None);
    let keys = ["a:1", "a:2", "a:3", "b:1"];
    for key in keys {
        run(&engine, reduce(bucket(key, 10), 4)).await.unwrap();
    }
    run(&engine, reduce(bucket("a:2", 20), 1)).await.unwrap();
    let first = engine.list(b"a:", None, 2).await.unwrap();
    let second = engine.list(b"a:", first.1.clone(), 3).await.unwrap();
    let third = engine.list(b"", None, 100).await.unwrap();
    let names = |page: &[Bucket]| -> Vec<String> {
        page.iter()
            .map(|entry| String::from_utf8(entry.key.clone()).unwrap())
            .collect()
    };
    assert_eq!(
        (names(&first.0), names(&second.0)),
        (
            vec!["a:1".into(), "a:2".into()],
            vec!["a:2".into(), "a:3".into()]
        )
    );
    assert_eq!((second.1, names(&third.0).len(), third.1), (None, 5, None));
    let found = engine.get(b"a:2").await.unwrap();
    let left = |found: &Bucket| match found.state {
        State::Tokens(balance) => balance.tokens,
        State::Throttle(_) => 0,
    };
    assert_eq!(found.iter().map(left).collect::<Vec<_>>(), [6, 19]);
    assert_eq!(engine.get(b"a").await.unwrap(), []);
}

#[tokio::test]
async fn reset_bucket_stays_full_after_restart() {
    let data = tempfile::tempdir().unwrap();
    let engine = open(data.path(), Durability::None);
    for key in ["a", "b"] {
        run(&engine, reduce(bucket(key, 10), 4)).await.unwrap();
    }
    engine.close().await.unwrap();
    drop(engine);
    let engine = open(data.path(), Durability::None);
    assert_eq!(
        engine.reset(NOW, b"a").await,
        Ok(1),
        "also of a bucket that is not in memory"
    );
    assert_eq!(engine.reset(NOW, b"c").await, Ok(0));
    assert_eq!(tokens(&engine, bucket("a", 10)).await, 10);
    drop(engine);
    let engine = open(data.path(), Durability::None);
    assert_eq!(
        (
            tokens(&engine, bucket("a", 10)).await,
            tokens(&engine, bucket("b", 10)).await
        ),
        (10, 6)
    );
    assert_eq!(engine.list(b"", None, 10).await.unwrap().0.len(), 1);
}

#[tokio::test]
async fn busiest_and_most_refused_keys_fade() {
    let data = tempfile::tempdir().unwrap();
    let engine = open(data.path(), INTERVAL);
    for (key, asked) in [("few", 1), ("many", 9), ("empty", 5)] {
        for _ in 0..asked {
            let max = if key == "empty" { 1 } else { 100 };
            run(&engine, reduce(bucket(key, max), 1)).await.unwrap();
        }
    }
    let keys = |top: &[(Vec<u8>, u32)]| -> Vec<(String, u32)> {
        top.iter()
            .map(|(key, count)| (String::from_utf8(key.clone()).unwrap(), *count))
            .collect()
    };
    let [asked, refused] = engine.top(2);
    assert_eq!(keys(&asked), [("many".into(), 9), ("empty".into(), 5)]);
    assert_eq!(keys(&refused), [("empty".into(), 4)]);
    let mut answers = Vec::new();
    engine
        .run(
            NOW + 60_000,
            &[reduce(bucket("many", 100), 1)],
            &mut answers,
        )
        .await;
    assert_eq!(keys(&engine.top(1)[0]), [("many".into(), 5)]);
}

#[tokio::test]
async fn key_is_found_behind_similar_keys() {
    let data = tempfile::tempdir().unwrap();
    let engine = open(data.path(), Durability::None);
    run(&engine, reduce(bucket("a", 10), 4)).await.unwrap();
    let keys: Vec<String> = (0..2 * PAGE_MAX)
        .map(|number| format!("a\0\0\0{number:06}"))
        .collect();
    for keys in keys.chunks(500) {
        let operations: Vec<_> = keys.iter().map(|key| reduce(bucket(key, 10), 1)).collect();
        assert!(
            run_all(&engine, &operations)
                .await
                .iter()
                .all(Result::is_ok)
        );
    }
    assert_eq!(engine.get(b"a").await.unwrap().len(), 1);
    assert_eq!(engine.reset(NOW, b"a").await, Ok(1));
    assert_eq!(tokens(&engine, bucket("a", 10)).await, 10);
    assert_eq!(tokens(&engine, bucket(&keys[0], 10)).await, 9);
}

#[tokio::test]
async fn all_buckets_of_a_key_are_reset() {
    let data = tempfile::tempdir().unwrap();
    let engine = open(data.path(), Durability::None);
    let sizes = 1..=PAGE_MAX as u64 * 2 + 1;
    let operations: Vec<_> = sizes
        .clone()
        .map(|max| reduce(bucket("a", max), 1))
        .collect();
    for operations in operations.chunks(50) {
        assert!(run_all(&engine, operations).await.iter().all(Result::is_ok));
    }
    assert_eq!(
        engine.reset(NOW, b"a").await,
        Ok(sizes.clone().count() as u64)
    );
    assert_eq!(
        tokens(&engine, bucket("a", *sizes.end())).await,
        *sizes.end()
    );
}
