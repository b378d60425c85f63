//! Buckets that do not fit into memory.

use super::support::*;
use crate::args::Durability;
use crate::engine::Engine;
use crate::operation::Answer;

#[tokio::test]
async fn buckets_beyond_the_memory_are_exact() {
    for durability in [INTERVAL, Durability::None] {
        let data = tempfile::tempdir().unwrap();
        let engine = open(data.path(), durability);
        let count = 25_000;
        let keys: Vec<String> = (0..count)
            .map(|number| format!("key:{number:0480}"))
            .collect();
        for round in 0..2 {
            for keys in keys.chunks(500) {
                for tokens in take_one_of_each(&engine, keys, 10).await {
                    assert_eq!(tokens, 10 - round, "at {durability}");
                }
            }
        }
        let stats = engine.stats();
        assert!(stats.buckets < count * 2 / 3, "{stats:?}");
        assert!(
            stats.cache_bytes <= stats.cache_bytes_max && stats.cache_bytes_max <= 8 << 20,
            "{stats:?}"
        );
    }
}

#[tokio::test]
async fn only_changing_buckets_stay_logged() {
    let data = tempfile::tempdir().unwrap();
    let engine = open(data.path(), INTERVAL);
    let (rare, often): (Vec<String>, Vec<String>) = (0..500)
        .map(|number| (format!("rare-{number}"), format!("often-{number}")))
        .unzip();
    take_one_of_each(&engine, &rare, 1_000).await;
    let mut rounds = 0;
    // Each round is a part of the log, which holds several of them until the first settling.
    while engine.shared.settling.groups() < 40 {
        take_one_of_each(&engine, &often, 1_000).await;
        engine.close().await.unwrap();
        rounds += 1;
        assert!(rounds < 900, "{} groups", engine.shared.settling.groups());
    }
    drop(engine);
    let engine = open(data.path(), INTERVAL);
    for (rare, often) in rare.iter().zip(&often) {
        assert_eq!(tokens(&engine, bucket(rare, 1_000)).await, 999);
        assert_eq!(tokens(&engine, bucket(often, 1_000)).await, 1_000 - rounds);
    }
}

/// Takes a token of each key, and returns what is left. While the disk is slower than a test, an
/// unanswered take has taken nothing, and is repeated.
async fn take_one_of_each(engine: &Engine, keys: &[String], max: u64) -> Vec<u64> {
    let mut left = vec![None; keys.len()];
    while left.contains(&None) {
        let unanswered = keys
            .iter()
            .zip(&mut left)
            .filter(|(_, left)| left.is_none());
        let (operations, slots): (Vec<_>, Vec<_>) = unanswered
            .map(|(key, left)| (reduce(bucket(key, max), 1), left))
            .unzip();
        for (slot, answer) in slots.into_iter().zip(run_all(engine, &operations).await) {
            if let Ok(answer) = answer {
                let Answer::Tokens(tokens) = answer else {
                    panic!("{answer:?}")
                };
                *slot = Some(tokens);
            }
        }
    }
    left.into_iter().flatten().collect()
}
