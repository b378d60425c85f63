//! A model of the buckets, written only from the rules, and 100,000 random commands that a server
//! answers in the same way.

use std::collections::BTreeMap;

use plimsoll_testing::turns::{ALL, turn};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use redis::{Connection, Pipeline, Value};

use super::server::Server;

const STEPS: usize = 100_000;
/// Commands that are sent together.
const PIPELINED: usize = 250;
/// Unless the variable of this name overrides it.
const SEED: u64 = 1;
const SEED_VARIABLE: &str = "QUOTA_MODEL_SEED";
const KEYS: usize = 12;
/// Time of the first command, like real callers', and not ahead of the server's clock.
const BEGIN_MS: i64 = 1_700_000_000_000;

/// Parameters that belong to the key of a bucket.
type Key = (usize, i64, i64, i64);

/// State of one bucket by the rules.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: i64,
    refilled_at: i64,
    session_at: i64,
}

/// One command, and the reply of the model.
#[derive(Debug)]
struct Step {
    words: Vec<String>,
    expected: Option<Value>,
}

#[derive(Default)]
struct Model(BTreeMap<Key, Bucket>);

struct Draw {
    rng: SmallRng,
    now: i64,
}

impl Model {
    /// Takes tokens, and returns the number before and the start of the session.
    fn take(
        &mut self,
        key: Key,
        at: i64,
        take: i64,
        is_strict: bool,
        is_session: bool,
    ) -> (i64, i64) {
        let (_, max, refill, every) = key;
        let held = self.0.get(&key).copied().unwrap_or(Bucket {
            tokens: max,
            refilled_at: at,
            session_at: at,
        });
        let passed = (at - held.refilled_at).max(0) / every;
        let mut bucket = held;
        bucket.tokens = i128::from(max)
            .min(i128::from(held.tokens) + i128::from(passed) * i128::from(refill))
            as i64;
        bucket.refilled_at += passed * every;
        let before = bucket.tokens;
        if take == 0 {
            return (before, held.session_at);
        }
        bucket.tokens = (before - take).max(0);
        if bucket.tokens == 0 && is_strict {
            bucket.refilled_at = bucket.refilled_at.max(at);
        }
        if is_session && before >= take {
            bucket.session_at = at;
        }
        self.0.insert(key, bucket);
        (before, bucket.session_at)
    }
}

impl Draw {
    /// Draws a command. A few keys and rates, so that buckets are used again; times that mostly
    /// advance.
    fn step(&mut self, model: &mut Model) -> Step {
        let rng = &mut self.rng;
        self.now += if rng.random_bool(0.7) {
            rng.random_range(0..400)
        } else {
            0
        };
        let is_seconds = rng.random_bool(0.5);
        let unit = if is_seconds { 1_000 } else { 1 };
        let late = if rng.random_bool(0.1) {
            rng.random_range(0..20_000)
        } else {
            0
        };
        let at = (self.now - late) / unit;
        let max = [1, 2, 5, 10, 1_000, i64::MAX][rng.random_range(0..6)];
        let every = if is_seconds {
            [1, 2, 7][rng.random_range(0..3)]
        } else {
            [1_000, 2_000, 1, 30][rng.random_range(0..4)]
        };
        let refill = rng
            .random_bool(0.4)
            .then(|| [1, 3, 10, i64::MAX][rng.random_range(0..4)]);
        let take = rng
            .random_bool(0.5)
            .then(|| [0, 1, 2, 4, 900, i64::MAX][rng.random_range(0..6)]);
        let verb = ["REDUCE", "REDUCE", "GET", "SESSIONIZE"][rng.random_range(0..4)];
        let is_strict = verb != "GET" && rng.random_bool(0.3);
        let name = rng.random_range(0..KEYS);
        let prefix = if is_seconds { "RL." } else { "RL.P" };
        let mut options: Vec<Vec<String>> = vec![vec!["AT".into(), at.to_string()]];
        options.extend(refill.map(|refill| vec!["refill".into(), refill.to_string()]));
        if verb != "GET" {
            options.extend(take.map(|take| vec!["Take".into(), take.to_string()]));
        }
        if is_strict {
            options.push(vec!["STRICT".into()]);
        }
        for last in (1..options.len()).rev() {
            options.swap(last, rng.random_range(0..=last));
        }
        let mut words = vec![
            format!("{prefix}{verb}"),
            format!("key{name}"),
            max.to_string(),
            every.to_string(),
        ];
        words.extend(options.into_iter().flatten());
        if rng.random_bool(0.02) {
            let spoilt = rng.random_range(2..words.len());
            words[spoilt] = "nothing".into();
            return Step {
                words,
                expected: None,
            };
        }
        let key = (name, max, refill.unwrap_or(max), every * unit);
        let taken = if verb == "GET" { 0 } else { take.unwrap_or(1) };
        let is_session = verb == "SESSIONIZE";
        let (before, session_at) =
            model.take(key, at * unit, taken, is_strict || is_session, is_session);
        let expected = if is_session {
            Value::Array(vec![Value::Int(before), Value::Int(session_at)])
        } else {
            Value::Int(before)
        };
        Step {
            words,
            expected: Some(expected),
        }
    }
}

#[test]
fn server_answers_random_commands_like_the_model() {
    let _turn = turn(ALL);
    let seed = std::env::var(SEED_VARIABLE).map_or(SEED, |seed| seed.parse().unwrap());
    println!("seed {seed}: repeat with {SEED_VARIABLE}={seed}");
    let server = Server::start();
    let mut connection = server.connect("");
    let mut model = Model::default();
    let mut draw = Draw {
        rng: SmallRng::seed_from_u64(seed),
        now: BEGIN_MS,
    };
    let mut number = 0;
    while number < STEPS {
        let steps: Vec<Step> = (0..PIPELINED).map(|_| draw.step(&mut model)).collect();
        for (step, reply) in steps.iter().zip(replies(&mut connection, &steps)) {
            number += 1;
            let is_same = match &step.expected {
                Some(expected) => reply == *expected,
                None => matches!(reply, Value::ServerError(_)),
            };
            assert!(
                is_same,
                "seed {seed}, step {number}: {step:?} was answered {reply:?}"
            );
        }
    }
}

/// Sends steps in one pipeline. Errors are replies like others.
fn replies(connection: &mut Connection, steps: &[Step]) -> Vec<Value> {
    let mut pipeline = Pipeline::new();
    pipeline.ignore_errors();
    for step in steps {
        let (name, arguments) = step.words.split_first().unwrap();
        pipeline.add_command(redis::cmd(name).arg(arguments).clone());
    }
    let results: Vec<redis::RedisResult<Value>> = pipeline.query(connection).unwrap();
    assert_eq!(results.len(), steps.len());
    let value = |result: redis::RedisResult<Value>| match result {
        Ok(value) => value,
        Err(error) => match redis::ServerError::try_from(error) {
            Ok(error) => Value::ServerError(error),
            Err(error) => panic!("{error:?}"),
        },
    };
    results.into_iter().map(value).collect()
}
