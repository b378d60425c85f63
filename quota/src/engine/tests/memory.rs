//! Buckets that do not fit into memory.

use super::support::*;
use crate::args::Durability;
use crate::operation::{Answer, Operation};

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
                let mut left: Vec<&String> = keys.iter().collect();
                // While the disk is slower than this test, an unanswered take has taken nothing.
                while !left.is_empty() {
                    let operations: Vec<Operation<'_>> =
                        left.iter().map(|key| reduce(bucket(key, 10), 1)).collect();
                    let answers = run_all(&engine, &operations).await;
                    left = left
                        .into_iter()
                        .zip(answers)
                        .filter_map(|(key, answer)| match answer {
                            Ok(answer) => {
                                assert_eq!(
                                    answer,
                                    Answer::Tokens(10 - round),
                                    "{key} at {durability}"
                                );
                                None
                            }
                            Err(_) => Some(key),
                        })
                        .collect();
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
    let engine = open(data.path(), Durability::Always);
    let (rare, often): (Vec<String>, Vec<String>) = (0..500)
        .map(|number| (format!("rare-{number}"), format!("often-{number}")))
        .unzip();
    let take = async |keys: &[String]| {
        let operations: Vec<_> = keys
            .iter()
            .map(|key| reduce(bucket(key, 1_000), 1))
            .collect();
        assert!(
            run_all(&engine, &operations)
                .await
                .iter()
                .all(Result::is_ok)
        );
    };
    take(&rare).await;
    let mut rounds = 0;
    // The log holds several of the rounds below until the first settling.
    while engine.shared.settling.groups() < 40 {
        take(&often).await;
        rounds += 1;
        assert!(rounds < 900, "{} groups", engine.shared.settling.groups());
    }
    drop(engine);
    let engine = open(data.path(), Durability::Always);
    for (rare, often) in rare.iter().zip(&often) {
        assert_eq!(tokens(&engine, bucket(rare, 1_000)).await, 999);
        assert_eq!(tokens(&engine, bucket(often, 1_000)).await, 1_000 - rounds);
    }
}
