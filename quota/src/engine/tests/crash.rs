//! Random operations with crashes between them, against a model.

use std::collections::HashMap;

use proptest::prelude::*;

use super::support::*;
use crate::args::Durability;
use crate::operation::{Answer, Operation};

#[derive(Clone, Debug)]
enum Step {
    Take { key: u8, take: u64 },
    TakeTwo { keys: [u8; 2], least: u64 },
    Save,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..6_u8, 1..5_u64).prop_map(|(key, take)| Step::Take { key, take }),
        3 => (0..6_u8, 1..6_u8, 1..4_u64)
            .prop_map(|(a, more, least)| Step::TakeTwo { keys: [a, (a + more) % 6], least }),
        1 => Just(Step::Save),
        1 => Just(Step::Crash),
    ]
}

const MAX: u64 = 40;

/// Runs steps. Returns for each key the total that was granted, and the maximum that a crash may
/// grant again.
async fn granted(durability: Durability, steps: &[Step]) -> HashMap<u8, (u64, u64)> {
    let data = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..6).map(|key| format!("k{key}")).collect();
    let mut engine = Some(open(data.path(), durability));
    let mut granted: HashMap<u8, (u64, u64)> = HashMap::new();
    let mut unsaved: HashMap<u8, u64> = HashMap::new();
    let mut grant = |key: u8, tokens: u64, unsaved: &mut HashMap<u8, u64>| {
        granted.entry(key).or_default().0 += tokens;
        *unsaved.entry(key).or_default() += tokens;
    };
    let mut twice: HashMap<u8, u64> = HashMap::new();
    for step in steps {
        let running = engine.as_ref().unwrap();
        match step {
            Step::Take { key, take } => {
                let answer = run(
                    running,
                    reduce(bucket(&names[usize::from(*key)], MAX), *take),
                )
                .await;
                if let Ok(Answer::Tokens(before)) = answer
                    && before >= *take
                {
                    grant(*key, *take, &mut unsaved);
                }
            }
            Step::TakeTwo { keys, least } => {
                let demands =
                    keys.map(|key| demand(bucket(&names[usize::from(key)], MAX), *least, *least));
                let operation = Operation::Take(demands.into_iter().collect());
                if let Ok(Answer::Taken(taken)) = run(running, operation).await {
                    for (key, taken) in keys.iter().zip(taken) {
                        grant(*key, taken.granted, &mut unsaved);
                    }
                }
            }
            Step::Save => {
                running.close().await.unwrap();
                unsaved.clear();
            }
            Step::Crash => {
                drop(engine.take());
                if durability != Durability::Always {
                    for (key, tokens) in unsaved.drain() {
                        *twice.entry(key).or_default() += tokens;
                    }
                }
                engine = Some(open(data.path(), durability));
            }
        }
    }
    for (key, tokens) in twice {
        granted.entry(key).or_default().1 = tokens;
    }
    granted
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn crash_grants_nothing_twice_that_was_saved(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for durability in [Durability::Always, INTERVAL, Durability::None] {
            for (key, (granted, twice)) in runtime.block_on(granted(durability, &steps)) {
                prop_assert!(granted <= MAX + twice, "{durability}, key {key}: {granted} granted, {twice} not saved");
            }
        }
    }
}
