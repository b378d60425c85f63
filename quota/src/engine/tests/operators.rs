//! What operators see and reset.

use super::support::*;
use crate::args::Durability;
use crate::engine::{BucketKind, PAGE_MAX};

#[tokio::test]
async fn buckets_are_listed_in_pages_and_found_by_key() {
    let data = tempfile::tempdir().unwrap();
    let engine = open(data.path(), Durability::None);
    let keys = ["a:1", "a:2", "a:3", "b:1"];
    for key in keys {
        run(&engine, reduce(bucket(key, 10), 4)).await.unwrap();
    }
    run(&engine, reduce(bucket("a:2", 20), 1)).await.unwrap();
    let first = engine.list(NOW, b"a:", None, 2).await.unwrap();
    let second = engine.list(NOW, b"a:", first.next.as_deref(), 3).await.unwrap();
    let third = engine.list(NOW, b"", None, 100).await.unwrap();
    let names = |page: &crate::engine::Page| -> Vec<String> {
        page.entries.iter().map(|entry| String::from_utf8(entry.key.clone()).unwrap()).collect()
    };
    assert_eq!(
        (names(&first), names(&second)),
        (vec!["a:1".into(), "a:2".into()], vec!["a:2".into(), "a:3".into()])
    );
    assert_eq!((second.next, names(&third).len(), third.next), (None, 5, None));
    let found = engine.get(NOW, b"a:2").await.unwrap();
    let left: Vec<u64> = found
        .iter()
        .map(|found| match found.kind {
            BucketKind::Tokens { balance, .. } => balance.tokens,
            BucketKind::Throttle { .. } => 0,
        })
        .collect();
    assert_eq!(left, [6, 19]);
    assert_eq!(engine.get(NOW, b"a").await.unwrap(), []);
}

#[tokio::test]
async fn reset_bucket_is_full_also_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let engine = open(data.path(), Durability::None);
    for key in ["a", "b"] {
        run(&engine, reduce(bucket(key, 10), 4)).await.unwrap();
    }
    engine.close().await.unwrap();
    drop(engine);
    let engine = open(data.path(), Durability::None);
    assert_eq!(engine.reset(NOW, b"a").await, Ok(1), "also of a bucket that is not in memory");
    assert_eq!(engine.reset(NOW, b"c").await, Ok(0));
    assert_eq!(tokens(&engine, bucket("a", 10)).await, 10);
    drop(engine);
    let engine = open(data.path(), Durability::None);
    assert_eq!((tokens(&engine, bucket("a", 10)).await, tokens(&engine, bucket("b", 10)).await), (10, 6));
    assert_eq!(engine.list(NOW, b"", None, 10).await.unwrap().entries.len(), 1);
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
    let keys = |top: &[crate::engine::TopEntry]| -> Vec<(String, u64, u64)> {
        let key = |entry: &crate::engine::TopEntry| String::from_utf8(entry.key.clone()).unwrap();
        top.iter().map(|entry| (key(entry), entry.asked, entry.refused)).collect()
    };
    let (asked, refused) = engine.top(2);
    assert_eq!(keys(&asked), [("many".into(), 9, 0), ("empty".into(), 5, 4)]);
    assert_eq!(keys(&refused), [("empty".into(), 5, 4)]);
    let mut answers = Vec::new();
    engine.run(NOW + 60_000, &[reduce(bucket("many", 100), 1)], &mut answers).await;
    assert_eq!(keys(&engine.top(1).0), [("many".into(), 5, 0)]);
}

#[tokio::test]
async fn key_is_found_and_reset_behind_any_number_of_keys_that_begin_alike() {
    let data = tempfile::tempdir().unwrap();
    let engine = open(data.path(), Durability::None);
    run(&engine, reduce(bucket("a", 10), 4)).await.unwrap();
    let keys: Vec<String> = (0..2 * PAGE_MAX).map(|number| format!("a\0\0\0{number:06}")).collect();
    for keys in keys.chunks(500) {
        let operations: Vec<_> = keys.iter().map(|key| reduce(bucket(key, 10), 1)).collect();
        assert!(run_all(&engine, &operations).await.iter().all(Result::is_ok));
    }
    assert_eq!(engine.get(NOW, b"a").await.unwrap().len(), 1);
    assert_eq!(engine.reset(NOW, b"a").await, Ok(1));
    assert_eq!(tokens(&engine, bucket("a", 10)).await, 10);
    assert_eq!(tokens(&engine, bucket(&keys[0], 10)).await, 9);
}

#[tokio::test]
async fn all_buckets_of_a_key_are_reset_whatever_their_number() {
    let data = tempfile::tempdir().unwrap();
    let engine = open(data.path(), Durability::None);
    let sizes = 1..=PAGE_MAX as u64 * 2 + 1;
    let operations: Vec<_> = sizes.clone().map(|max| reduce(bucket("a", max), 1)).collect();
    for operations in operations.chunks(500) {
        assert!(run_all(&engine, operations).await.iter().all(Result::is_ok));
    }
    assert_eq!(engine.reset(NOW, b"a").await, Ok(sizes.clone().count() as u64));
    assert_eq!(tokens(&engine, bucket("a", *sizes.end())).await, *sizes.end());
}
