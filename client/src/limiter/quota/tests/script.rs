//! The scripts and the integer bucket, on a real Redis: the same answers at the same times.

use std::sync::LazyLock;

use ::redis::{Connection, Script};
use plimsoll_core::quota::{Balance, lease};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::servers::Server;
use super::*;

const TAKE: &str = include_str!("../store/take.lua");
const GIVE: &str = include_str!("../store/give.lua");
/// Maximum number that Redis counts exactly.
const MOST: u64 = 1 << 53;

type Asked1 = (QuotaRate, u64, u64);

fn take_at(redis: &mut Connection, key: &str, asked: &[Asked1], at: u64) -> Vec<Vec<i64>> {
    static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(TAKE));
    take_by(&SCRIPT, redis, key, asked, at)
}

fn take_by(
    script: &Script,
    redis: &mut Connection,
    key: &str,
    asked: &[Asked1],
    at: u64,
) -> Vec<Vec<i64>> {
    let mut call = script.prepare_invoke();
    for place in 0..asked.len() {
        call.key(format!("{key}:{place}"));
    }
    for &(rate, ref least, ref wanted) in asked {
        call.arg(rate.max())
            .arg(rate.refill())
            .arg(rate.every_ms())
            .arg(*least)
            .arg(*wanted);
    }
    call.arg(at).invoke(redis).unwrap()
}

/// Takes by the integer buckets, as a quota server does.
fn model(balances: &mut [Option<Balance>], asked: &[Asked1], at: u64) -> Vec<Vec<i64>> {
    let full = |balance: Option<Balance>, rate| {
        balance
            .unwrap_or(Balance::full(rate, at))
            .refilled(rate, at)
    };
    let is_enough = balances
        .iter()
        .zip(asked)
        .all(|(balance, (rate, least, _))| full(*balance, *rate).tokens >= *least);
    let rows = balances
        .iter_mut()
        .zip(asked)
        .map(|(kept, (rate, least, wanted))| {
            let mut balance = full(*kept, *rate);
            let granted = if is_enough {
                lease(balance.tokens, *least, *wanted)
            } else {
                0
            };
            balance.tokens -= granted;
            if kept.is_some() || granted > 0 {
                *kept = Some(balance);
            }
            let refill_in = balance.next_refill_ms(*rate).saturating_sub(at);
            let holds_in = balance
                .holds_at_ms(*rate, *least)
                .map(|then| then.saturating_sub(at));
            [
                Some(granted),
                Some(balance.tokens),
                Some(refill_in),
                holds_in,
            ]
            .map(|number| number.map_or(-1, |number| i64::try_from(number).unwrap()))
            .to_vec()
        });
    rows.collect()
}

fn rate() -> impl Strategy<Value = QuotaRate> {
    let number =
        || prop_oneof![4 => 1_u64..50, 1 => 1_u64..100_000, 1 => (MOST - 50)..=MOST, 1 => 1..=MOST];
    let every = prop_oneof![4 => 1_u64..5_000, 1 => 1_u64..10_000_000_000];
    (number(), number(), every)
        .prop_map(|(max, refill, every)| QuotaRate::new(max, refill, every).unwrap())
}

#[test]
fn script_answers_as_the_integer_bucket_does() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let redis = std::cell::RefCell::new(server.connect().unwrap());
    // Redis expires by its own clock, which is not that of the test. TOUCH changes nothing.
    let script = TAKE.replace("'PEXPIRE'", "'TOUCH'");
    assert_ne!(script, TAKE);
    let script = Script::new(&script);
    let case = std::cell::Cell::new(0_u64);
    let count = || prop_oneof![6 => 0_u64..20, 1 => 0..=MOST];
    let steps = proptest::collection::vec(
        (
            proptest::collection::vec((count(), count()), 2),
            0_u64..4_000,
        ),
        1..40,
    );
    let rates = proptest::collection::vec(rate(), 1..=2);
    let config = ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    TestRunner::new(config)
        .run(&(rates, steps), |(rates, steps)| {
            case.set(case.get() + 1);
            let key = format!("plimsoll:{{case-{}}}", case.get());
            let mut balances = vec![None; rates.len()];
            let mut at = std::time::SystemTime::UNIX_EPOCH
                .elapsed()
                .unwrap()
                .as_millis() as u64;
            for (demands, wait) in steps {
                at += wait;
                let asked: Vec<Asked1> = rates
                    .iter()
                    .zip(demands)
                    .map(|(rate, (least, wanted))| (*rate, least, wanted))
                    .collect();
                let answer = take_by(&script, &mut redis.borrow_mut(), &key, &asked, at);
                let mut expected = model(&mut balances, &asked, at);
                for number in expected.iter_mut().flatten() {
                    *number = (*number).min(MOST as i64);
                }
                prop_assert_eq!(answer, expected, "{:?} at {}", asked, at);
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn script_debits_all_keys_or_none() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let mut redis = server.connect().unwrap();
    let (minute, hour) = (
        QuotaRate::new(5, 5, 60_000).unwrap(),
        QuotaRate::new(3, 3, 3_600_000).unwrap(),
    );
    let now = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap()
        .as_millis() as u64;
    let both = |cost| [(minute, cost, cost), (hour, cost, cost)];
    let rows = take_at(&mut redis, "a", &both(2), now);
    assert_eq!(rows, [[2, 3, 60_000, 0], [2, 1, 3_600_000, 3_600_000]]);
    let rows = take_at(&mut redis, "a", &both(2), now + 1_000);
    assert_eq!(rows, [[0, 3, 59_000, 0], [0, 1, 3_599_000, 3_599_000]]);
    let ttl: i64 = ::redis::cmd("PTTL").arg("a:0").query(&mut redis).unwrap();
    assert!((50_000..=60_000).contains(&ttl), "{ttl}: until it is full");
    let never = take_at(&mut redis, "b", &[(hour, 4, 4)], now);
    assert_eq!(never, [[0, 3, 3_600_000, -1]]);
    assert!(
        !::redis::cmd("EXISTS")
            .arg("b:0")
            .query::<bool>(&mut redis)
            .unwrap(),
        "a refusal writes nothing"
    );
}

#[test]
fn script_numbers_stop_where_doubles_are_exact() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let mut redis = server.connect().unwrap();
    let most = i64::try_from(MOST).unwrap();
    let huge = QuotaRate::new(i64::MAX as u64, i64::MAX as u64, i64::MAX as u64).unwrap();
    let rows = take_at(&mut redis, "huge", &[(huge, 1, 1)], 1_000_000_000_000);
    assert_eq!(rows, [[1, most - 1, most, 0]]);
    let rows = take_at(
        &mut redis,
        "huge",
        &[(huge, MOST - 1, u64::MAX / 2)],
        1_000_000_000_000,
    );
    assert_eq!(
        rows[0][..2],
        [most - 1, 0],
        "each token is counted up to the edge"
    );
    let rows = take_at(&mut redis, "huge", &[(huge, 1, 1)], 1_000_000_000_000);
    assert_eq!(rows[0][0], 0);
}

#[test]
fn give_fills_the_bucket_once() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let mut redis = server.connect().unwrap();
    let rate = QuotaRate::new(10, 10, 3_600_000).unwrap();
    let now = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap()
        .as_millis() as u64;
    let script = Script::new(GIVE);
    let give = |redis: &mut Connection, mark: &str, tokens: u64| -> u64 {
        script
            .key("g:0")
            .key(mark)
            .arg(rate.max())
            .arg(tokens)
            .invoke(redis)
            .unwrap()
    };
    assert_eq!(give(&mut redis, "m0", 3), 10, "no bucket yet: it is full");
    take_at(&mut redis, "g", &[(rate, 8, 8)], now);
    assert_eq!(
        (give(&mut redis, "m1", 3), give(&mut redis, "m1", 3)),
        (5, 5),
        "a repeated call counts once"
    );
    assert_eq!(give(&mut redis, "m2", 30), 10);
    let ttl: i64 = ::redis::cmd("PTTL").arg("g:0").query(&mut redis).unwrap();
    assert!(ttl > 0, "the expiry stays");
}
